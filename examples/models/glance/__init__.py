from hf_ngsan import register_model_type

from .configuration_glance import GlanceConfig

register_model_type(GlanceConfig, task="captioning")

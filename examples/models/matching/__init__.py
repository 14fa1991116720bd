from hf_ngsan import register_model_type
from hf_ngsan.tasks import register_task

from .configuration_matching import MatchingConfig
from .task import MatchingTask

register_model_type(MatchingConfig, task="matching")
register_task("matching", MatchingTask)

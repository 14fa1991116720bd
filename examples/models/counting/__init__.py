from hf_ngsan import register_model_type
from hf_ngsan.tasks import register_task

from .configuration_counting import CountingConfig
from .task import CountingTask

register_model_type(CountingConfig, task="counting")
register_task("counting", CountingTask)

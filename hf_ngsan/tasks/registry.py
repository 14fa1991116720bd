"""The tasks by name, and training configs of any task; the model type decides the task.

```python
config = load_training_config("ngsan/scenes", ["training.epochs=5"])  # a CaptioningConfig
train(config)
```
"""

import os
from collections.abc import Iterable, Mapping
from pkgutil import resolve_name

from ..loading.models import load_config, task_of
from ..registry import MODEL_TYPES
from ..training.config import ConfigError, TrainingConfig, suggestion
from ..training.config import load_training_config as load_training_config_of_class
from ..training.run import TrainingResult, run_task
from ..training.task import Task

TASKS: dict[str, str | type[Task]] = {
    "captioning": "hf_ngsan.tasks.captioning:CaptioningTask",
    "retrieval": "hf_ngsan.tasks.retrieval:RetrievalTask",
    "language_modeling": "hf_ngsan.tasks.language_modeling:LanguageModelingTask",
    "translation": "hf_ngsan.tasks.translation:TranslationTask",
    "visual_question_answering": "hf_ngsan.tasks.question_answering:VisualQuestionAnsweringTask",
}
DEFAULT_TASK = "captioning"


def register_task(name: str, task: type[Task]) -> None:
    """Adds a task; model types registered for its name belong to it."""
    TASKS[name] = task


def task_class(name: str) -> type[Task]:
    """Returns the class of a task by its name."""
    task = TASKS[name]
    return resolve_name(task) if isinstance(task, str) else task


def task_class_of(model: Mapping) -> type[Task]:
    """Returns the class of the task of a training config's section `model`.

    Raises:
        ConfigError: the model type is unknown or has no task.
        FileNotFoundError, ModelFolderError: the folder of `init_from` has no model.
    """
    model_type = model.get("model_type")
    if "init_from" in model and model_type is None:
        config = load_config(model["init_from"])
        model_type, task = config.model_type, task_of(config)
        if task in TASKS:
            return task_class(task)
    if model_type is None:
        return task_class(DEFAULT_TASK)
    known = {name: entry.task for name, entry in MODEL_TYPES.items() if entry.task in TASKS}
    if model_type not in known:
        raise ConfigError(f"model.model_type: unknown model type {model_type!r}{suggestion(model_type, known)}")
    return task_class(known[model_type])


def load_training_config(path: str | os.PathLike, overrides: Iterable[str] = ()) -> TrainingConfig:
    """Reads a training config, as the class of its task; see [`~hf_ngsan.training.config.load_training_config`]."""
    return load_training_config_of_class(path, overrides, lambda model: task_class_of(model).config_class)


def train(config: TrainingConfig, *, resume: bool = False, overwrite: bool = False) -> TrainingResult:
    """Trains the model that a training config describes; see [`~hf_ngsan.training.run.run_task`]."""
    return run_task(task_class_of(config.model)(config), resume=resume, overwrite=overwrite)

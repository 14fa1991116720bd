"""Training and evaluation of captioners: one loop on Accelerate, resumable to the bit.

Names are imported when used, so that importing this package imports nothing heavy.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .averaging import WeightAverage
    from .captioners import find_model_folder, load_captioner, new_captioner, save_captioner
    from .checkpoints import CheckpointError, Checkpoints, TrainingProgress
    from .evaluation import Evaluation, evaluate_captioner
    from .generation import caption_batch, generate_captions
    from .loop import TrainingDivergedError, TrainingLoop
    from .objective import Objective
    from .recipe import Recipe, RecipeError, load_recipe, save_recipe
    from .relations import relation_accuracy
    from .run import TrainingResult, train
    from .schedules import learning_rate_at
    from .teacher_forcing import TeacherForcing

LOCATIONS = {
    "CheckpointError": "checkpoints",
    "Checkpoints": "checkpoints",
    "Evaluation": "evaluation",
    "Objective": "objective",
    "Recipe": "recipe",
    "RecipeError": "recipe",
    "TeacherForcing": "teacher_forcing",
    "TrainingDivergedError": "loop",
    "TrainingLoop": "loop",
    "TrainingProgress": "checkpoints",
    "TrainingResult": "run",
    "WeightAverage": "averaging",
    "caption_batch": "generation",
    "evaluate_captioner": "evaluation",
    "find_model_folder": "captioners",
    "generate_captions": "generation",
    "learning_rate_at": "schedules",
    "load_captioner": "captioners",
    "load_recipe": "recipe",
    "new_captioner": "captioners",
    "relation_accuracy": "relations",
    "save_captioner": "captioners",
    "save_recipe": "recipe",
    "train": "run",
}


def __getattr__(name: str):
    if name not in LOCATIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{LOCATIONS[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *LOCATIONS])


__all__ = [
    "CheckpointError",
    "Checkpoints",
    "Evaluation",
    "Objective",
    "Recipe",
    "RecipeError",
    "TeacherForcing",
    "TrainingDivergedError",
    "TrainingLoop",
    "TrainingProgress",
    "TrainingResult",
    "WeightAverage",
    "caption_batch",
    "evaluate_captioner",
    "find_model_folder",
    "generate_captions",
    "learning_rate_at",
    "load_captioner",
    "load_recipe",
    "new_captioner",
    "relation_accuracy",
    "save_captioner",
    "save_recipe",
    "train",
]

"""Training and evaluation of captioners: one loop on Accelerate, resumable to the bit.

Names are imported when used, so that importing this package imports nothing heavy.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from ..loading import find_model_folder, load_captioner, save_captioner
    from .averaging import WeightAverage
    from .checkpoints import CheckpointError, Checkpoints, TrainingProgress
    from .evaluation import Evaluation, evaluate_captioner
    from .generation import caption_batch, generate_captions
    from .loop import TrainingDivergedError, TrainingLoop
    from .new_captioners import new_captioner
    from .objective import Objective
    from .policy import Policy
    from .recipe import Recipe, RecipeError, load_recipe, save_recipe
    from .relations import relation_accuracy
    from .rewards import CaptionRewards, RewardError
    from .run import TrainingResult, train
    from .schedules import learning_rate_at
    from .self_critical import SelfCritical
    from .stages import Stage
    from .teacher_forcing import TeacherForcing

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "averaging": ["WeightAverage"],
        ".loading": ["find_model_folder", "load_captioner", "save_captioner"],
        "checkpoints": ["CheckpointError", "Checkpoints", "TrainingProgress"],
        "evaluation": ["Evaluation", "evaluate_captioner"],
        "generation": ["caption_batch", "generate_captions"],
        "loop": ["TrainingDivergedError", "TrainingLoop"],
        "new_captioners": ["new_captioner"],
        "objective": ["Objective"],
        "recipe": ["Recipe", "RecipeError", "load_recipe", "save_recipe"],
        "relations": ["relation_accuracy"],
        "run": ["TrainingResult", "train"],
        "policy": ["Policy"],
        "rewards": ["CaptionRewards", "RewardError"],
        "schedules": ["learning_rate_at"],
        "self_critical": ["SelfCritical"],
        "stages": ["Stage"],
        "teacher_forcing": ["TeacherForcing"],
    },
)

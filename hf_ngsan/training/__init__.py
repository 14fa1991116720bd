"""The training loop, for the model of any task with any objective, on one process or several, resumable bit-exactly."""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .config import ConfigError, TrainingConfig, save_training_config
    from .loop import TrainingDivergedError, TrainingLoop
    from .optimizer import WeightAverage, learning_rate_at
    from .output_folder import CheckpointError, Checkpoints, TrainingProgress
    from .run import TrainingResult, run_task
    from .task import Evaluation, InputRoles, Stage, Task

__getattr__, __dir__, __all__ = lazy_names(__name__)

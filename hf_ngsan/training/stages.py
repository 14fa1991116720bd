"""A stage of training: one objective with one schedule."""

from collections.abc import Callable
from dataclasses import dataclass

from transformers import PreTrainedModel

from .objectives.objective import Objective
from .settings import ScheduleSettings


@dataclass(frozen=True)
class Stage:
    """A part of a run with one objective and one schedule.

    Attributes:
        name: of the stage, and of the folder that keeps its best model when another stage follows.
        objective: turns batches into losses.
        settings: the learning rate's schedule, `epochs` and `early_stopping_patience` are used.
        epoch_name: what an epoch of the stage is called in the log.
        prepare: called with the model when the stage begins or resumes, to freeze weights that it does not train;
            `None` leaves the model as it is. The optimizer holds all weights that are trainable before the first stage.
    """

    name: str
    objective: Objective
    settings: ScheduleSettings
    epoch_name: str = "epoch"
    prepare: Callable[[PreTrainedModel], None] | None = None

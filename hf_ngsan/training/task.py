"""What the engine asks of a task."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ..data import EpochSampler
from ..loading import save_model
from .batches import batches_of_rows
from .recipe import Recipe, RecipeError, suggestion
from .stages import Stage


class Task(ABC):
    """Turns a training config into rows, a model, batches, objectives and scores.

    The engine calls, in this order, `load_rows` for both splits, `build`, `training_rows`, `evaluation_rows`, `stages`,
    `collator`, `identity` and `sampler`, then `evaluate` and `save` once an epoch.

    Args:
        recipe: an instance of `recipe_class`.

    Attributes:
        recipe_class: the task's settings: [`Recipe`] or a subclass.
        unit: what a row is called in the log, in the plural, such as "images".
    """

    recipe_class: ClassVar[type[Recipe]] = Recipe
    unit: ClassVar[str] = "rows"

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    @property
    def metric(self) -> str:
        """The score that chooses the best model."""
        return self.recipe.evaluation.metric

    @property
    def greater_is_better(self) -> bool:
        """Whether the better of two models has the higher `metric`."""
        return True

    @abstractmethod
    def load_rows(self, split: str) -> Dataset:
        """Returns the rows of a split, checked.

        Raises:
            DataError: they cannot be used for this task.
        """

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        """Returns the names of the scores that `evaluate` will return for the validation rows; `[]` if not known.

        Raises:
            RecipeError: the rows cannot be scored.
        """
        return []

    @abstractmethod
    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        """Returns the model that the recipe describes, on the CPU, and its processor, made for the training rows.

        Raises:
            RecipeError: fields that do not exist, do not fit together or do not fit the rows.
        """

    def training_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        """Returns the training rows with the columns that the model and the objectives read."""
        return rows

    def evaluation_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        """Returns the validation rows with the columns that the model and the metrics read."""
        return rows

    @abstractmethod
    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        """Returns what the model is trained with, one stage after the other."""

    def sampler(self, rows: Dataset) -> Callable[..., EpochSampler]:
        """Returns what makes the batches of an epoch of the training rows; see [`batches_of_rows`]."""
        return batches_of_rows(rows, self.recipe.training)

    @abstractmethod
    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        """Returns what makes a batch of tensors of a list of rows.

        Its method `set_epoch(epoch)`, if there is one, is called before each epoch.
        """

    @abstractmethod
    def evaluate(
        self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, accelerator: Accelerator
    ) -> dict[str, float]:
        """Returns the scores of a model in evaluation mode, not wrapped; called in every process, equal in all."""

    def identity(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> dict:
        """Returns JSON values that tell the training data from any other; a run resumes with the same ones only."""
        return {f"number of {self.unit}": len(rows)}

    def save(self, model: PreTrainedModel, processor: ProcessorMixin, folder: str | os.PathLike) -> None:
        """Saves the model and its processor into a folder that `from_pretrained` reads."""
        save_model(model, processor, folder)

    def check_metric(self, rows: Dataset) -> None:
        """Raises a RecipeError unless the evaluation of these rows gives the metric that chooses the best model."""
        known = self.known_metrics(rows)
        if known and self.metric not in known:
            raise RecipeError(f"evaluation.metric: unknown metric {self.metric!r}{suggestion(self.metric, known)}")

"""A task, such as counting things: its rows, models, objectives and scores. The engine and every command ask it alone.

    class CountingTask(Task):
        recipe_class = CountingRecipe
        unit = "images"
        ...

docs/adding_a_model.md has the whole of this one; `hf_ngsan.tasks.register_task` makes it known.
"""

import argparse
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ..data import EpochSampler
from ..ground.files import write_text_atomically
from ..loading.models import load_model, save_model
from .batches import batches_of_rows
from .objectives.objective import Objective
from .recipe import Recipe, RecipeError, suggestion
from .settings import ScheduleSettings


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        scores: numbers by the names of the metrics: those of the training log, of `--record` and of the card.
        signatures: how a library computed some of them, by the same names.
        results: the output of the model for each row, as JSON has it; a task with other outputs overrides `save`.
        report: the JSON that `hf-ngsan evaluate` prints; by default the scores.
    """

    scores: dict[str, float]
    signatures: Mapping[str, str] = field(default_factory=dict)
    results: Sequence[Any] = ()
    report: Mapping[str, Any] | None = None

    def save(self, path: str | os.PathLike) -> None:
        """Writes the results into a file, whole or not at all."""
        write_text_atomically(path, json.dumps(list(self.results)) + "\n")


@dataclass(frozen=True)
class InputRoles:
    """The meaning of the inputs of a model that writes words, for `hf-ngsan audit`.

    Attributes:
        words, word_mask: the words that it continues, and their mask.
        source, source_mask: the input that it writes about, and its mask; none for a language model.
        source_name: what messages call the tokens of that, in the plural.
        rows_name: name of its rows in messages, in the plural.
        source_is_a_set: whether the order of its tokens has no meaning.
        draw_source: from a configuration, a shape `(rows, tokens)` and a generator to random inputs of `source`.
    """

    words: str
    word_mask: str
    source: tuple[str, ...] = ()
    source_mask: str | None = None
    source_name: str = ""
    rows_name: str = "rows"
    source_is_a_set: bool = False
    draw_source: Callable[..., dict] | None = None


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


class Task(ABC):
    """Turns a training config into rows, a model, batches, objectives and scores.

    The engine calls, in this order, `load_rows` for both splits, `build`, `training_rows`, `evaluation_rows`, `stages`,
    `collator`, `identity` and `sampler`, then `evaluate` and `save` once an epoch. `hf-ngsan evaluate` calls `load`,
    `load_rows`, `evaluation_rows` and `evaluate`, so that its scores are those of the training log.

    Args:
        recipe: an instance of `recipe_class`.

    Attributes:
        recipe_class: the task's settings: [`Recipe`] or a subclass.
        unit: what a row is called in the log, in the plural, such as "images".
        model_noun: what a model of the task is called, such as "a translator".
        does: what such a model does, for its card, such as "translates sentences".
        pipeline_tag: the task's name on the Hub, if it has one there.
        tags: further ones of its models' cards.
        can_ensemble: whether several models may be evaluated together; then `load` takes them.
        has_results: whether an evaluation has something to write for each row (`--output`).
        input_roles: of models that write words, for `hf-ngsan audit`.
    """

    recipe_class: ClassVar[type[Recipe]] = Recipe
    unit: ClassVar[str] = "rows"
    model_noun: ClassVar[str] = "a model of another task"
    does: ClassVar[str] = "has a task of its own"
    pipeline_tag: ClassVar[str | None] = None
    tags: ClassVar[tuple[str, ...]] = ()
    can_ensemble: ClassVar[bool] = False
    has_results: ClassVar[bool] = True
    input_roles: ClassVar[InputRoles | None] = None

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
        """Returns the stages of the training, in their order."""

    def sampler(self, rows: Dataset) -> Callable[..., EpochSampler]:
        """Returns a function that makes the batches of an epoch of the training rows; see [`batches_of_rows`]."""
        return batches_of_rows(rows, self.recipe.training)

    @abstractmethod
    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        """Returns a function that makes a batch of tensors of a list of rows.

        Its method `set_epoch(epoch)`, if there is one, is called before each epoch.
        """

    @abstractmethod
    def evaluate(
        self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, accelerator: Accelerator, **options: Any
    ) -> Evaluation | dict[str, float]:
        """Scores a model in evaluation mode, not wrapped, on rows; called in every process, equal in all.

        Args:
            model: on the accelerator's device.
            processor: the model's.
            rows: what `evaluation_rows` returned.
            accelerator: to split the work among processes.
            options: those of `add_evaluation_options` that were given; none in training.

        Returns:
            What was found; the scores alone do for a task whose rows have no results.
        """

    def evaluate_all(self, *arguments: Any, **options: Any) -> Evaluation:
        """Calls `evaluate`, which may return scores alone."""
        found = self.evaluate(*arguments, **options)
        return found if isinstance(found, Evaluation) else Evaluation(found)

    @classmethod  # noqa: B027  # a task may have none
    def add_evaluation_options(cls, parser: argparse.ArgumentParser) -> None:
        """Adds the task's own options of `hf-ngsan evaluate`; their default is `None`, or `False` for a switch."""

    @classmethod
    def load(cls, names: Sequence[str], task: str) -> tuple[PreTrainedModel, Any]:
        """Loads the model, or the models, that an evaluation names, and their processor.

        Args:
            names: what [`~hf_ngsan.loading.models.find_model_folder`] takes; one, unless the task `can_ensemble`.
            task: the name that the task is registered with.
        """
        return load_model(names[0], task)

    @classmethod
    def comparable_settings(cls, metric: str, generation: Mapping, options: Mapping) -> dict[str, Any]:
        """Returns what a score depends on beside model and data; scores with other settings are not comparable.

        Args:
            metric: name of the score.
            generation: the model's settings of `generate()`, empty for a model that writes nothing.
            options: of the evaluation: those of `add_evaluation_options`, or the section `evaluation` of a training
                config.
        """
        return {}

    @classmethod
    def card_usage(cls, model: PreTrainedModel, place: str) -> list[str] | None:
        """Returns lines of Python that use a model with transformers alone; `None` for those that only load it.

        Args:
            model: the one that the card is of.
            place: arguments that name its repository in Python.
        """
        return None

    @classmethod
    def card_notes(cls, training_config: Mapping[str, Mapping]) -> list[str]:
        """Returns sentences on a training that a reader of the card must know to compare its scores."""
        return []

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

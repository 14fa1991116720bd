"""The interface of a task: rows, models, objectives and scores. Training and all commands use only this interface.

`examples/models/counting` is a complete example; `hf_ngsan.tasks.register_task` registers a task.
"""

import argparse
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ..data import EpochSampler
from ..io.files import write_output
from ..loading.models import load_model
from .batches import MicroBatch, batches_of_rows
from .config import ScheduleSettings, TrainingConfig
from .optimizer import save_adapted


@dataclass(frozen=True)
class Update:
    """Information about one update of the weights for an objective.

    Attributes:
        seed, step: seed of the run and number of the update. Random choices for a row must be a function of these and
            of the row, so that they do not depend on the number of processes.
        gather: concatenates tensors `(n, ...)` with any n over all processes; each process must call it equally often.
            Returns the whole tensor and the index of this process's part.
        one_process: whether this is the only process.
    """

    seed: int
    step: int
    gather: Callable[[torch.Tensor], tuple[torch.Tensor, int]] = lambda tensor: (tensor, 0)
    one_process: bool = False

    def keeps_graph(self, batches: Sequence[MicroBatch]) -> bool:
        """Returns whether [`Objective.prepare`] may keep a graph for the loss, because it is the only one in memory."""
        return self.one_process and len(batches) == 1


class Objective(ABC):
    """Computes a sum of losses for a batch, and the weight by which the sum is divided.

    The loop divides by the weight of the *global* batch (all processes, all accumulation steps), so that the update
    does not depend on how the batch was split.

    Attributes:
        training_mode: whether the model is in training mode, with dropout.
        needs_row_index: whether the loop adds `row_index (B,)` to each batch, the number of each training row.
        can_compile: whether `loss` works with a compiled model (`training.compile`).
    """

    training_mode = True
    needs_row_index = False
    can_compile = True

    def prepare(self, model: torch.nn.Module, batches: Sequence[MicroBatch], update: Update) -> list[dict]:
        """Returns the inputs of `weight` and `loss` for each micro-batch of an update, before any loss is computed.

        By default, [`prepare_batch`][Objective.prepare_batch] completes each of them separately. An objective whose
        loss combines rows of several micro-batches or processes, such as in-batch negatives, overrides this method. The
        model is not wrapped. The batches are this process's share of the global batch, on the model's device; fillers
        must not count.
        """
        return [self.prepare_batch(model, batch.inputs, update) for batch in batches]

    def prepare_batch(self, model: torch.nn.Module, inputs: dict, update: Update) -> dict:
        """Completes one micro-batch without gradients, for example by sampling."""
        return inputs

    @abstractmethod
    def weight(self, inputs: dict) -> torch.Tensor:
        """Returns the contribution of a micro-batch to the divisor, a scalar such as the number of target tokens."""

    @abstractmethod
    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Returns the summed loss (a scalar with gradient) and statistics (scalars to be summed over micro-batches).

        The model is wrapped for several processes and mixed precision, and must be called once.
        """

    @abstractmethod
    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        """Returns metrics to report, including `loss`, from summed statistics of any part of the training."""

    def describe(self, summary: dict[str, float]) -> str:
        """Returns the most important metrics of a summary, for the progress bar and the line of an epoch."""
        return f"loss {summary['loss']:.4f}"

    def warnings(self, history: list[dict]) -> list[str]:
        """Returns warnings for the log, one sentence each, from the epoch summaries of the stage so far."""
        return []


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    scores: dict[str, float]  # scores by metric, for the training log, `--record` and the card
    signatures: Mapping[str, str] = field(default_factory=dict)  # signatures of a scoring library, by metric
    results: Sequence[Any] = ()  # result of each row, as JSON values; a task with other outputs overrides `save`
    report: Mapping[str, Any] | None = None  # JSON printed by `hf-ngsan evaluate`; by default the scores
    rows: int | None = None  # number of rows and settings of each score; `hf_ngsan.tasks.evaluate` sets both
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the results into a file, atomically."""
        write_output(path, json.dumps(list(self.results)) + "\n")


@dataclass(frozen=True)
class InputRoles:
    """The names of the inputs of a text-generating model, for `hf-ngsan audit`.

    `draw_source` draws random `source` inputs from a configuration, a shape `(rows, tokens)` and a generator.
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

    `prepare` is called with the model when the stage starts or resumes, to freeze the weights that it does not train.
    The optimizer has all weights that are trainable before the first stage, except those in `training.freeze`; a stage
    cannot train other weights.
    """

    name: str  # also the name of the folder of its best model if another stage follows
    objective: Objective
    settings: ScheduleSettings  # learning rate, `epochs` and `early_stopping_patience`
    epoch_name: str = "epoch"  # name of an epoch in the log
    prepare: Callable[[PreTrainedModel], None] | None = None


class Task(ABC):
    """Turns a training config into rows, a model, batches, objectives and scores.

    Training calls, in this order, `load_rows` for both splits, `build`, `training_rows`, `evaluation_rows`, `stages`,
    `collator`, `identity`, `sampler`, `encode_once`, `begin`, then `evaluate` and `save` once per epoch. `hf-ngsan
    evaluate` calls `load`, `load_rows`, `evaluation_rows` and `evaluate`; its scores equal those of the training log.
    """

    config_class: ClassVar[type[TrainingConfig]] = TrainingConfig
    unit: ClassVar[str] = "rows"  # name of rows in the log, such as "images"
    model_noun: ClassVar[str] = "a model of another task"  # e.g. "a translator"
    does: ClassVar[str] = "has a custom task"  # verb phrase for cards, such as "translates sentences"
    pipeline_tag: ClassVar[str | None] = None  # the task's name on the Hub, if it has one
    tags: ClassVar[tuple[str, ...]] = ()  # further tags of its cards
    can_ensemble: ClassVar[bool] = False  # whether `load` accepts several models
    has_results: ClassVar[bool] = True  # whether an evaluation has a result per row (`--output`)
    writes_text: ClassVar[bool] = False  # whether evaluations use `generate()` and its arguments
    input_roles: ClassVar[InputRoles | None] = None  # for text-generating models, for `hf-ngsan audit`

    def __init__(self, config: TrainingConfig) -> None:
        self.config = config

    @property
    def metric(self) -> str:
        """The score that chooses the best model."""
        return self.config.evaluation.metric

    @property
    def greater_is_better(self) -> bool:
        """Whether the better of two models has the higher `metric`."""
        return True

    @abstractmethod
    def load_rows(self, split: str) -> Dataset:
        """Returns the rows of a split; raises a DataError if they cannot be used for this task."""

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        """Returns the names of the scores of `evaluate` for the validation rows; `[]` if unknown."""
        return []

    @abstractmethod
    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        """Returns the model of the training config (on the CPU) and its processor, built for the training rows.

        Raises a ConfigError for fields that do not exist, contradict each other or do not match the rows.
        """

    def training_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        """Returns the training rows with the columns that the model and the objectives read."""
        return rows

    def evaluation_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        """Returns the validation rows with the columns that the model and the metrics read."""
        return rows

    def encode_once(
        self, model: Any, processor: Any, rows: Dataset, validation_rows: Dataset | None, accelerator: Accelerator
    ) -> tuple[Dataset, Dataset | None]:
        """Returns both with precomputed outputs of frozen parts of the model; then `collator` is called again."""
        return rows, validation_rows

    def begin(self, model: Any, processor: Any, rows: Dataset) -> None:  # noqa: B027  # most tasks need nothing
        """Prepares the model with these rows before the first update, in evaluation mode and in every process."""

    @abstractmethod
    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        """Returns the stages of the training, in order."""

    def sampler(self, rows: Dataset) -> Callable[..., EpochSampler]:
        """Returns a function that returns the batches of an epoch of the training rows; see [`batches_of_rows`]."""
        return batches_of_rows(rows, self.config.training)

    @abstractmethod
    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        """Returns a function that makes a batch of tensors from a list of rows.

        If it has a method `set_epoch(epoch)`, the method is called before each epoch.
        """

    @abstractmethod
    def evaluate(
        self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, accelerator: Accelerator, **options: Any
    ) -> Evaluation | dict[str, float]:
        """Scores a model in evaluation mode, not wrapped, on rows of `evaluation_rows`.

        The method is called in every process and returns the same result in all of them; a task without row results may
        return only scores. `options` come from `add_evaluation_options`; training passes none.
        """

    def evaluate_all(self, *arguments: Any, **options: Any) -> Evaluation:
        """Calls `evaluate`; scores alone are turned into an [`Evaluation`]."""
        result = self.evaluate(*arguments, **options)
        return result if isinstance(result, Evaluation) else Evaluation(result)

    @classmethod  # noqa: B027  # a task may have none
    def add_evaluation_options(cls, parser: argparse.ArgumentParser) -> None:
        """Adds the task's options to `hf-ngsan evaluate`; their default must be `None`, or `False` for a switch."""

    @classmethod
    def load(cls, names: Sequence[str], task: str) -> tuple[PreTrainedModel, Any]:
        """Loads the model of an evaluation, or the ensemble if the task `can_ensemble`, and its processor."""
        return load_model(names[0], task)

    @classmethod
    def comparable_settings(cls, metric: str, generation: Mapping, options: Mapping) -> dict[str, Any]:
        """Returns the settings that a score depends on, from `generate()` and the options of an evaluation."""
        return {}

    @classmethod
    def card_usage(cls, model: PreTrainedModel, place: str) -> list[str] | None:
        """Returns Python lines that use a model with transformers alone; `None` for the default lines that load it."""
        return None

    @classmethod
    def card_notes(cls, training_config: Mapping[str, Mapping]) -> list[str]:
        """Returns sentences about the training that readers of the card need for comparing scores."""
        return []

    def identity(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> dict:
        """Returns JSON values that identify the training data; resuming requires equal values."""
        return {f"number of {self.unit}": len(rows)}

    def save(self, model: PreTrainedModel, processor: ProcessorMixin, folder: str | os.PathLike) -> None:
        """Saves the model and its processor into a folder that `from_pretrained` reads."""
        save_adapted(model, processor, folder)

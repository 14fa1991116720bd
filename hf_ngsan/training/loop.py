"""The training loop for every model and objective, in one process or several; resuming is bit-exact."""

import json
import logging
import math
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, broadcast, broadcast_object_list, gather_object
from datasets import Dataset
from torch.nn.utils import get_total_norm
from tqdm.auto import tqdm
from transformers import PreTrainedModel, ProcessorMixin

from ..data import EpochSampler
from ..io.files import read_json_or_none, write_text_atomically
from ..io.folders import replace_folder_contents, write_folder_atomically
from ..io.messages import ProgressDisplay
from ..loading.models import is_guest, without_weight_bars
from .batches import FeatureCache, MicroBatch, UpdateBatches, gather_rows, update_loader
from .config import ConfigError
from .optimizer import WeightAverage, freeze, learning_rate_at, load_weights, make_optimizer, trained_weights_of_vision
from .output_folder import (
    BEST_SCORES,
    HISTORY,
    STAGE_FILE,
    Checkpoints,
    TrainedObjects,
    TrainingProgress,
    read_checkpoint,
    write_state,
)
from .task import Objective, Stage, Task, Update

logger = logging.getLogger(__name__)


class TrainingDivergedError(ValueError):
    """The loss or the final score is infinite or not a number; the message has the epoch and a remedy."""

    exit_code = 1  # the arguments themselves are valid


class TrainingLoop:
    """Trains a model epoch by epoch, and evaluates, saves and stops according to the training config.

    The random states of an update (Python, NumPy, PyTorch) are a function of the seed, the number of the update and the
    process; a batch is a function of the seed, the epoch and the rows. A killed and resumed run therefore computes the
    same numbers as an uninterrupted one. With dropout, the masks depend on the number of processes; without dropout,
    results agree up to the rounding of sums. The model is moved to the accelerator's device and wrapped.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        task: Task,
        model: PreTrainedModel,
        processor: ProcessorMixin,
        rows: Dataset,
        validation_rows: Dataset | None = None,
    ) -> None:
        self.accelerator, self.task, self.processor = accelerator, task, processor
        self.rows, self.validation_rows = rows, validation_rows
        self.config, self.settings = task.config, task.config.training
        self.greater_is_better, self.unit = task.greater_is_better, task.unit
        self.stages = task.stages(model, processor, rows)
        freeze(model, self.settings.freeze)  # after all changes by the task
        self.collator, self.cache = task.collator(processor), cast(FeatureCache | None, None)
        self.data_identity = task.identity(model, processor, rows)
        self.make_sampler = task.sampler(rows)
        self.output_dir = self.config.output_dir
        self.checkpoints = Checkpoints(self.output_dir / "checkpoints", self.settings.keep_checkpoints)
        self.progress = TrainingProgress()
        self.steps_per_epoch = self.sampler().batches_per_epoch
        if not self.steps_per_epoch:
            size = self.settings.batch_size
            raise ConfigError(f"training.drop_last leaves no batch: batch_size {size}, {len(rows)} {self.unit}.")
        optimizer = make_optimizer(model, self.settings, fused=accelerator.device.type in ("cpu", "cuda"))
        # Processes would wait for gradients of weights that do not affect the loss, such as some of a backbone.
        if is_guest(model.config) or trained_weights_of_vision(model) or any(stage.prepare for stage in self.stages):
            accelerator.ddp_handler = DistributedDataParallelKwargs(find_unused_parameters=True)
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.bare_model = accelerator.unwrap_model(self.model)
        compiles = (accelerator.device.type == "cuda") if self.settings.compile == "auto" else self.settings.compile
        self.compiled: Any = torch.compile(self.model, dynamic=True) if compiles in (True, "true") else self.model
        self.average = WeightAverage(self.bare_model, self.settings.ema_decay) if self.settings.ema_decay else None
        self.new_sums: dict[str, torch.Tensor] = {}
        self.last_batches: list[MicroBatch] = []
        self.prepare_stage()

    def use_rows(self, rows: Dataset, validation_rows: Dataset | None) -> None:
        """Switches to other training rows; their features are kept on the device if the training config requests it."""
        self.rows, self.validation_rows, self.collator = rows, validation_rows, self.task.collator(self.processor)
        self.cache = FeatureCache.of(self.settings.cache_on_device, rows, self.collator, self.accelerator.device)

    def prepare_stage(self) -> None:
        """Freezes weights that the stage does not train; weights that are not in the optimizer stay frozen."""
        if self.stage.prepare is not None:
            self.stage.prepare(self.bare_model)
            trained = {weight for group in self.optimizer.param_groups for weight in group["params"]}
            for weight in {*self.bare_model.parameters()} - trained:
                weight.requires_grad_(False)

    def resume(self, is_asked: bool = True) -> bool:
        """Loads the newest intact checkpoint if requested in the main process; returns False if there is none."""
        chosen = [self.checkpoints.newest_intact() if is_asked and self.accelerator.is_main_process else None]
        [folder] = broadcast_object_list(chosen)  # from the main process, because only it has the lock of the folder
        if folder is None:
            return False
        self.progress = read_checkpoint(folder, self.data_identity, self.trained_objects())
        self.prepare_stage()
        if self.accelerator.is_main_process:
            self.checkpoints.remove_older(folder)  # a kill may have left them
        logger.info("Resuming from %s: epoch %d, update %d.", folder, self.progress.epoch + 1, self.progress.step)
        return True

    def run(self) -> None:
        """Trains until the last epoch or until early stopping."""
        if self.progress.step == 0:
            self.model.eval()
            if "init_from" in self.config.model and self.validation_rows is not None:
                scores = self.scores()  # the initial trained model is the best until another is better
                self.keep_if_best(0, scores)
                logger.info("Before this training: %s %.4f.", self.task.metric, scores[self.task.metric])
            self.task.begin(self.bare_model, self.processor, self.rows)
            broadcast([weight.data for weight in self.bare_model.parameters()])  # GPUs may round differently
        self.start_clock()
        while not self.is_finished():
            if self.stage_is_over():
                self.begin_next_stage()
            started_at = time.monotonic()
            self.train_epoch()
            self.finish_epoch(time.monotonic() - started_at)

    @property
    def stage(self) -> Stage:
        return self.stages[self.progress.stage]

    @property
    def objective(self) -> Objective:
        return self.stage.objective

    def is_finished(self) -> bool:
        return self.progress.stage == len(self.stages) - 1 and self.stage_is_over()

    def stage_is_over(self) -> bool:
        return self.progress.stage_epoch >= self.stage.settings.epochs or self.out_of_patience()

    def out_of_patience(self) -> bool:
        patience = self.stage.settings.early_stopping_patience
        return patience is not None and self.progress.evaluations_since_best >= patience

    def begin_next_stage(self) -> None:
        """Continues from the best weights so far, with a new optimizer."""
        progress, start = self.progress, self.keep_start_of_next_stage()
        with without_weight_bars():
            load_weights(self.bare_model, start)
        self.optimizer.state.clear()
        if self.average is not None:
            self.average.restart()
        progress.stage, progress.stage_epoch, progress.evaluations_since_best = progress.stage + 1, 0, 0
        self.prepare_stage()
        logger.info("The stage %s starts from the model in %s.", self.stage.name, start)
        self.start_clock()

    def keep_start_of_next_stage(self) -> Path:
        """Returns the folder of the finished stage's best model. It is a copy: in the next stage, `best` may improve.

        The copy is written again if its losses differ, because an earlier run with deleted checkpoints wrote it.
        """
        folder = self.output_dir / self.stage.name
        best = self.output_dir / ("best" if self.progress.best_epoch is not None else "last")
        ended = {"step": self.progress.step, "losses": [entry["loss"] for entry in self.progress.history]}

        def fill(new: Path) -> None:
            shutil.copytree(best, new, dirs_exist_ok=True)
            (new / STAGE_FILE).write_text(json.dumps(ended), encoding="utf-8")

        if self.accelerator.is_main_process and read_json_or_none(folder / STAGE_FILE) != ended:
            write_folder_atomically(folder, fill)
        self.accelerator.wait_for_everyone()
        return folder

    def start_clock(self) -> None:
        self.started_at, self.started_from = time.monotonic(), self.progress.step

    def train_epoch(self) -> None:
        """Performs the remaining updates of the current epoch."""
        progress, settings, on_gpu = self.progress, self.settings, self.accelerator.device.type == "cuda"
        if hasattr(self.collator, "set_epoch"):
            self.collator.set_epoch(progress.epoch)
        shares, num_parts = list(self.sampler(progress.epoch)), settings.gradient_accumulation_steps
        with_row_index = self.objective.needs_row_index or self.cache is not None
        batches = UpdateBatches(self.rows, self.collator, shares, num_parts, with_row_index)
        self.model.train(self.objective.training_mode)
        name, shown = self.name_of_epoch(progress.stage_epoch + 1), self.accelerator.is_main_process
        with ProgressDisplay(name, len(self.rows), self.rows_done(), self.unit, shown=shown) as display:
            for micro_batches in update_loader(batches, progress.step_in_epoch, self.config.data.num_workers, on_gpu):
                self.update(micro_batches)
                progress.step += 1
                progress.step_in_epoch += 1
                status, at_end = None, progress.step_in_epoch == self.steps_per_epoch
                if progress.step % settings.log_every == 0 or at_end:
                    self.gather_sums()
                    numbers = self.training_summary()
                    values = {**numbers, "learning_rate": self.optimizer.param_groups[0]["lr"]}
                    self.log({f"train/{name}": value for name, value in values.items()})
                    status = f"{self.objective.describe(numbers)}, {self.time_left()} left"
                display.update(self.rows_done(), status)
                if settings.save_every_steps and progress.step % settings.save_every_steps == 0 and not at_end:
                    self.check_state()
                    self.save_checkpoint()

    def sampler(self, epoch: int = 0) -> EpochSampler:
        """Returns this process's share of every batch of an epoch."""
        state = self.accelerator.state
        return self.make_sampler(epoch=epoch, num_processes=state.num_processes, process_index=state.process_index)

    def update(self, micro_batches: list[MicroBatch]) -> None:
        """Performs one optimizer step with this process's share of a global batch."""
        progress, accelerator = self.progress, self.accelerator
        seed_everything(self.settings.seed, progress.step, accelerator.process_index)
        step_of_stage = progress.stage_epoch * self.steps_per_epoch + progress.step_in_epoch
        rate = learning_rate_at(step_of_stage, self.steps_per_epoch, self.stage.settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["rate_factor"]

        self.last_batches = micro_batches
        batches, prepared = self.prepared(micro_batches, one_process=self.model is self.bare_model)
        counted = (inputs for inputs, batch in zip(prepared, batches, strict=True) if batch.num_rows)
        weight = sum(map(self.objective.weight, counted), start=torch.zeros((), device=accelerator.device))
        model = self.compiled if self.objective.can_compile else self.model
        # the factor is needed because gradients are averaged over processes
        scale = accelerator.num_processes / accelerator.reduce(weight, reduction="sum").clamp(min=1)

        for index, inputs in enumerate(prepared):
            is_last, is_filler = index == len(prepared) - 1, batches[index].num_rows == 0
            with nullcontext() if is_last else accelerator.no_sync(self.model):
                loss, statistics = self.objective.loss(model, inputs)
                accelerator.backward(loss * (0.0 if is_filler else scale))
            if not is_filler:
                self.count(rows=torch.tensor(batches[index].num_rows), **statistics)
        if self.settings.max_grad_norm is not None:
            norm = accelerator.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
            if accelerator.is_main_process:
                self.count(gradient_norm=norm, updates=torch.tensor(1))
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average is not None:
            self.average.update(progress.step + 1)

    def prepared(self, micro_batches: list[MicroBatch], one_process: bool) -> tuple[list[MicroBatch], list[dict]]:
        """Returns micro-batches on the device and the inputs of their losses."""
        if self.cache is not None:
            micro_batches = [self.cache.complete(batch, self.objective.needs_row_index) for batch in micro_batches]
        batches = [batch.to(self.accelerator.device) for batch in micro_batches]
        update = Update(self.settings.seed, self.progress.step, partial(gather_rows, self.accelerator), one_process)
        with self.accelerator.autocast():
            return batches, self.objective.prepare(self.bare_model, batches, update)

    def count(self, **statistics: torch.Tensor) -> None:
        for name, value in statistics.items():
            self.new_sums[name] = self.new_sums.get(name, 0.0) + value.detach().float()

    def gather_sums(self) -> None:
        """Adds the statistics of all processes since the last call to those of the epoch."""
        new = gather_object([{name: float(value) for name, value in self.new_sums.items()}])
        self.progress.sums = added([self.progress.sums, *new])
        self.new_sums = {}

    def training_summary(self) -> dict[str, float]:
        """Returns the metrics of the epoch so far; raises a TrainingDivergedError if the loss is not a number."""
        sums = self.progress.sums
        summary = self.objective.summary(sums)
        self.check_loss(summary["loss"])
        if "updates" in sums:
            summary["gradient_norm"] = sums["gradient_norm"] / sums["updates"]
        return summary

    def log(self, values: dict[str, float]) -> None:
        self.accelerator.log(values, step=self.progress.step)
        for tracker in self.accelerator.trackers:
            if tracker.name == "tensorboard":
                tracker.writer.flush()

    def finish_epoch(self, seconds: float) -> None:
        """Evaluates and saves the model, logs the epoch, and saves a checkpoint."""
        progress = self.progress
        num_rows = progress.sums["rows"]
        entry = {"stage": self.stage.name, "epoch": progress.epoch + 1, "step": progress.step}
        entry |= self.training_summary()
        entry["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        self.model.eval()
        self.check_state()
        with self.average.applied() if self.average else nullcontext():
            self.check_outputs()
            epoch, every = progress.stage_epoch + 1, self.config.evaluation.every_epochs
            is_due = epoch % every == 0 or epoch == self.stage.settings.epochs
            if self.validation_rows is not None and is_due:
                scores = self.scores()
                entry |= scores
                self.keep_if_best(progress.epoch + 1, scores)
            self.save_model_as("last")
        entry |= {"seconds": round(seconds, 2), f"{self.unit}_per_second": round(num_rows / seconds, 1)}
        progress.history.append(entry)
        progress.epoch += 1
        progress.stage_epoch += 1
        progress.step_in_epoch = 0
        progress.sums = {}
        self.report(entry)
        self.save_checkpoint()

    def scores(self) -> dict[str, float]:
        task, model, rows = self.task, self.bare_model, self.validation_rows
        with full_precision(model):
            return dict(task.evaluate_all(model, self.processor, rows, self.accelerator).scores)

    def keep_if_best(self, epoch: int, scores: dict[str, float]) -> None:
        progress, score = self.progress, scores[self.task.metric]
        progress.evaluations_since_best += 1
        if self.is_better(score, progress.best_score):
            progress.best_score, progress.best_epoch, progress.evaluations_since_best = score, epoch, 0
            self.save_model_as("best", {"epoch": epoch, "scores": scores})

    def is_better(self, score: float, best: float | None) -> bool:
        if best is None or not math.isfinite(score):
            return math.isfinite(score)
        return score > best if self.greater_is_better else score < best

    @torch.no_grad()
    def check_outputs(self) -> None:
        """Computes the loss of the last batch again, because the epoch's loss was computed before the last update."""
        batches, prepared = self.prepared(self.last_batches, one_process=False)
        sums = []
        with self.accelerator.autocast():
            for inputs, batch in zip(prepared, batches, strict=True):
                if batch.num_rows:
                    _, statistics = self.objective.loss(self.bare_model, inputs)
                    sums.append({name: float(value) for name, value in statistics.items()})
        self.check_loss(self.objective.summary(added(gather_object(sums)))["loss"])

    def check_loss(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise TrainingDivergedError(f"The loss became {loss} {self.how_diverged()}")

    def check_end(self) -> None:
        """Raises a TrainingDivergedError if the last score of a run is not a number."""
        metric, best = self.task.metric, self.progress.best_epoch
        last = next((entry for entry in reversed(self.progress.history) if metric in entry), None)
        if last is not None and not math.isfinite(last[metric]):
            kept = "there is no best model" if best is None else f"the best model is that of epoch {best}"
            raise TrainingDivergedError(
                f"The run ended with a {metric} of {last[metric]} in epoch {last['epoch']}; {kept}. Train again with a "
                "lower training.learning_rate, or with training.max_grad_norm."
            )

    def report(self, entry: dict) -> None:
        progress, metric = self.progress, self.task.metric
        parts = [self.name_of_epoch(progress.stage_epoch), self.objective.describe(entry)]
        if metric in entry:
            is_best = progress.best_epoch == entry["epoch"]
            parts.append(f"{metric} {entry[metric]:.4f}{' (best)' if is_best else ''}")
        parts += [f"lr {entry['learning_rate']:.2e}", f"{entry[f'{self.unit}_per_second']:.0f} {self.unit}/s"]
        parts += [tqdm.format_interval(entry["seconds"]), f"{self.time_left()} left"]
        logger.info("%s", ", ".join(parts))
        if self.out_of_patience():
            logger.info("Early stopping of this stage: no better %s since epoch %d.", metric, progress.best_epoch or 0)
        stage_history = [earlier for earlier in progress.history if earlier["stage"] == self.stage.name]
        for warning in self.objective.warnings(stage_history):
            logger.warning("Warning: %s", warning)
        self.log({f"epoch/{name}": value for name, value in entry.items() if isinstance(value, float)})
        if self.accelerator.is_main_process:
            lines = [json.dumps(entry) + "\n" for entry in progress.history]
            write_text_atomically(self.output_dir / HISTORY, "".join(lines))

    def save_model_as(self, name: str, evaluated: dict | None = None) -> None:
        def fill(folder: Path) -> None:
            self.task.save(self.bare_model, self.processor, folder)
            if evaluated is not None:
                write_text_atomically(folder / BEST_SCORES, json.dumps(evaluated, indent=1) + "\n")

        if self.accelerator.is_main_process:
            replace_folder_contents(self.output_dir / name, fill)
        self.accelerator.wait_for_everyone()

    def check_state(self) -> None:
        """Checks that the state is finite before it is saved."""
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        averages = self.average.tensors.values() if self.average else ()
        tensors = [*self.bare_model.parameters(), *filter(torch.is_tensor, states), *averages]
        if not get_total_norm(tensors, torch.inf).isfinite():
            raise TrainingDivergedError(f"A weight is no longer a number {self.how_diverged()}")

    def how_diverged(self) -> str:
        return (
            f"in epoch {self.progress.epoch + 1}, at update {self.progress.step} or shortly before; resume from the "
            "last checkpoint with --resume and a lower training.learning_rate, or with training.max_grad_norm."
        )

    def save_checkpoint(self) -> None:
        self.gather_sums()
        if self.accelerator.is_main_process:
            self.checkpoints.save(
                self.progress.step,
                lambda folder: write_state(folder, self.progress, self.data_identity, self.trained_objects()),
            )
        self.accelerator.wait_for_everyone()

    def trained_objects(self) -> TrainedObjects:
        return TrainedObjects(self.bare_model, self.optimizer, self.average, self.accelerator.scaler)

    def rows_done(self) -> int:
        """Returns the approximate number of rows processed in the current epoch."""
        return round(len(self.rows) * self.progress.step_in_epoch / self.steps_per_epoch)

    def name_of_epoch(self, number: int) -> str:
        return f"{self.stage.epoch_name} {number}/{self.stage.settings.epochs}"

    def time_left(self) -> str:
        """Returns the estimated remaining time of the stage, including evaluations, as hours, minutes and seconds."""
        steps_done = self.progress.step - self.started_from
        epochs_left = self.stage.settings.epochs - self.progress.stage_epoch
        steps_left = epochs_left * self.steps_per_epoch - self.progress.step_in_epoch
        return tqdm.format_interval((time.monotonic() - self.started_at) / max(steps_done, 1) * max(steps_left, 0))


@contextmanager
def full_precision(model: torch.nn.Module) -> Iterator[None]:
    """Removes the casting `forward` that Accelerate (1.15) sets on a bare model, inside the `with` block."""
    mixed = model.__dict__.pop("forward", None)
    try:
        yield
    finally:
        if mixed is not None:
            model.__dict__["forward"] = mixed


def added(statistics: Sequence[dict[str, float]]) -> dict[str, float]:
    """Returns the sums of statistics by name."""
    names = dict.fromkeys(name for part in statistics for name in part)
    return {name: sum(part[name] for part in statistics if name in part) for name in names}


def seed_everything(seed: int, step: int, process_index: int) -> None:
    """Sets the random states of Python, NumPy and PyTorch to a function of the three numbers."""
    words = numpy.random.SeedSequence([seed, step, process_index]).generate_state(4)
    random.seed(int(words[0]))
    numpy.random.seed(words[1])
    torch.manual_seed((int(words[2]) << 32 | int(words[3])) & 0x7FFF_FFFF_FFFF_FFFF)

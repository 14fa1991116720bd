"""A training run: loads the rows and the model of a task, trains the model, and writes the folder of the run."""

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import set_seed
from datasets import Dataset

from ..data.errors import MissingSplitError
from ..data.readers import VALIDATION, set_aside
from ..extraction.image_list import check_images
from ..io.folders import FolderLock
from ..io.packaged import names_of_parts
from ..io.processes import make_accelerator
from ..loading.models import derive_from
from .config import ConfigError, suggestion
from .loop import TrainingLoop
from .optimizer import adapt
from .output_folder import LOCK, check_output_folder, prepare_output_folder
from .task import Task

logger = logging.getLogger(__name__)

BF16_FEATURES = ("avx512_bf16", "amx_bf16", "sve_bf16", "bf16")  # keys of `torch.cpu.get_capabilities`


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run; the best model is the last one if nothing was evaluated."""

    output_dir: Path
    best_dir: Path
    best_score: float | None
    best_epoch: int | None  # 0 is the initial model of `model.init_from`
    history: list[dict]  # loss, scores, learning rate and time of each epoch


def run_task(task: Task, *, resume: bool = False, overwrite: bool = False) -> TrainingResult:
    """Trains the model of a task.

    Works in one process and under `accelerate launch`. The folder `config.training.output_dir` will have

    - `training_config.yaml`, with comments;
    - `best/` and `last/`, models with processors for `from_pretrained`; `best/` also has its scores,
      `best_scores.json`; the best model of each stage except the last is in a folder with the name of the stage;
    - `history.jsonl`, one line per epoch, and `tensorboard/`;
    - `checkpoints/`, for `resume`; without checkpoints, the run starts from the beginning. On the CPU, the final
      weights are bit-exactly those of an uninterrupted run.

    Raises:
        ConfigError, DataError: the training config does not match the data or the run to resume.
        FileExistsError: the folder is not empty, and neither `resume` nor `overwrite` is True.
        CheckpointError: no checkpoint is intact.
        TrainingDivergedError: the loss, or the last score, became infinite or not a number.
    """
    config, settings, folder = task.config, task.config.training, task.config.output_dir
    check_output_folder(config, resume, overwrite)  # before a long preparation
    check_tracker(settings.tracker)
    if settings.num_threads is not None:
        torch.set_num_threads(settings.num_threads)
    device = (torch.accelerator.is_available() and torch.accelerator.current_accelerator()) or torch.device("cpu")
    precision = precision_of(settings.mixed_precision, device)
    accelerator = make_accelerator(mixed_precision=precision, log_with=settings.tracker, project_dir=str(folder))
    if not accelerator.is_main_process:
        logging.getLogger("hf_ngsan").setLevel(logging.ERROR)
    loop = make_loop(task, accelerator)
    refusal = f"Another training run is writing {folder}; wait for its end, or choose another training.output_dir."
    with FolderLock(folder, FileExistsError(refusal), LOCK) if accelerator.is_main_process else nullcontext():
        train_in_folder(loop, resume, overwrite)
    progress = loop.progress
    best_dir = folder / ("best" if progress.best_epoch is not None else "last")
    return TrainingResult(folder, best_dir, progress.best_score, progress.best_epoch, progress.history)


def make_loop(task: Task, accelerator: Accelerator) -> TrainingLoop:
    """Loads the rows of a task, builds its model, and checks both."""
    config, validation_rows = task.config, None
    with accelerator.main_process_first():
        train_rows = task.load_rows(config.data.train_split)
        if config.data.validation_split is not None:
            train_rows, validation_rows = with_validation_rows(task, train_rows, config.data.validation_split)
            known, metric = task.known_metrics(validation_rows), task.metric
            if known and metric not in known:
                raise ConfigError(f"evaluation.metric: unknown metric {metric!r}{suggestion(metric, known)}")
        if accelerator.is_main_process:
            check_images([train_rows, validation_rows], config.data.spec)
    set_seed(config.training.seed)
    model, processor = task.build(train_rows)
    derive_from(model, [*names_of_parts(config.model), *(getattr(config.training, "teachers", None) or [])])
    adapt(model, config)
    train_rows = task.training_rows(model, processor, train_rows)
    if validation_rows is not None:
        validation_rows = task.evaluation_rows(model, processor, validation_rows)
    return TrainingLoop(accelerator, task, model, processor, train_rows, validation_rows)


def train_in_folder(loop: TrainingLoop, resume: bool, overwrite: bool) -> None:
    """Trains in the folder of a run, locked by the main process; does nothing if the run is finished."""
    accelerator, task, config = loop.accelerator, loop.task, loop.config
    is_main = accelerator.is_main_process
    resumes = is_main and check_output_folder(config, resume, overwrite)
    is_resumed = loop.resume(resumes)  # before anything is written, because it may fail
    if is_resumed and loop.is_finished():
        logger.info("The run in %s is finished; there is nothing to train.", loop.output_dir)
        loop.check_end()
        return
    if is_main:
        prepare_output_folder(config, resumes)
    accelerator.wait_for_everyone()
    rows = task.encode_once(loop.bare_model, loop.processor, loop.rows, loop.validation_rows, accelerator)
    loop.use_rows(*rows)
    if not is_resumed:
        number = f"{sum(weight.numel() for weight in loop.bare_model.parameters() if weight.requires_grad):,}"
        processes, precision = accelerator.num_processes, accelerator.mixed_precision
        where = "one process" if processes == 1 else f"{processes} processes"
        where += "" if precision == "no" else f", in {precision}"
        logger.info("Training %s parameters on %d %s, on %s.", number, len(loop.rows), loop.unit, where)
    if loop.settings.tracker == "tensorboard":  # a resumed run writes the steps after its checkpoint again
        options = {"tensorboard": {"purge_step": loop.progress.step + 1}} if loop.progress.step else {}
        accelerator.init_trackers("tensorboard", init_kwargs=options)
    elif loop.settings.tracker is not None:
        accelerator.init_trackers("hf-ngsan", config=config.to_dict())
    loop.run()
    for tracker in accelerator.trackers:
        tracker.finish()
    loop.check_end()


def precision_of(setting: str | None, device: torch.device) -> str:
    """Returns no, fp16 or bf16; `auto` is bf16 on devices with bf16 instructions, because emulation is slow."""
    if setting != "auto":
        return setting or "no"
    computes = False
    if device.type == "cuda":
        computes = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu" and hasattr(torch.cpu, "get_capabilities"):  # PyTorch 2.11 or later
        capabilities = torch.cpu.get_capabilities()
        computes = any(capabilities.get(name, False) for name in BF16_FEATURES)
    return "bf16" if computes else "no"


def check_tracker(name: str | None) -> None:
    """Raises a ConfigError for a missing tracker, which Accelerate would silently ignore."""
    installed = sorted(map(str, get_available_trackers()))
    if name is not None and name not in installed:
        raise ConfigError(f"training.tracker: {name} is not installed; set it to null{suggestion(name, installed)}")


def with_validation_rows(task: Task, train_rows: Dataset, split: str) -> tuple[Dataset, Dataset]:
    """Returns training and validation rows; if there is no validation split, some training rows are held out."""
    try:
        return train_rows, task.load_rows(split)
    except MissingSplitError:
        if split != VALIDATION:
            raise
    rest, validation_rows = set_aside(train_rows, task.config.data.spec)
    chosen = f"{len(validation_rows)} of {len(train_rows)} {task.unit} choose the best model"
    logger.info("There is no split 'validation': %s. data.validation_split=null trains on all rows.", chosen)
    return rest, validation_rows


def load_split(load: Callable[[str], Dataset], split: str, spec: str) -> Dataset:
    """Returns the rows of a split; for a missing split `validation`, the rows that training holds out."""
    try:
        return load(split)
    except MissingSplitError:
        if split != VALIDATION:
            raise
    logger.info("%s has no split 'validation'; using the rows that training holds out.", spec)
    return set_aside(load("train"), spec)[1]


def short_checksum(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]

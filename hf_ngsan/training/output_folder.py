"""The folder of a training run: its lock, its checkpoints, and the deletion of an earlier run.

Only files and folders of the earlier run are deleted; other files in the folder stay.
"""

import json
import logging
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, load_model, save_file, save_model

from ..io import folders
from ..io.files import read_json_or_none, temporary_path, write_text_atomically
from ..io.messages import one_sentence
from .config import RUN_HEADER, ConfigError, TrainingConfig, load_config_of_class, save_training_config
from .optimizer import WeightAverage, copy_into

logger = logging.getLogger(__name__)

TRAINING_CONFIG = "training_config.yaml"
HISTORY = "history.jsonl"
BEST_SCORES = "best_scores.json"  # in the folder `best`: its epoch (0 = the initial model) and its scores
STAGE_FILE = "end_of_stage.json"  # in the folder of a stage's best model: the stage's last update and its losses
PROGRESS = "progress.json"
LOCK = ".lock"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message names the folder and a remedy."""


@dataclass
class TrainingProgress:
    """The position of a run: completed stages, epochs and updates, and their results."""

    stage: int = 0
    stage_epoch: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)  # statistics of the epoch over all processes
    best_score: float | None = None
    best_epoch: int | None = None  # counted from 1
    evaluations_since_best: int = 0
    history: list[dict] = field(default_factory=list)  # an entry for each completed epoch


class Checkpoints:
    """The checkpoints of a run, in folders `step-N`; only the newest are kept."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def all(self) -> list[Path]:
        """Returns all checkpoints, the oldest first."""
        names = {path.name.removeprefix(folders.REPLACED_PREFIX) for path in self.folder.glob("*step-*")}
        return [folders.find_folder(self.folder / name) for name in sorted(names) if name.startswith("step-")]

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Adds the checkpoint of an update, then removes old checkpoints."""
        self.folder.mkdir(parents=True, exist_ok=True)
        newest = self.folder / f"step-{step:09d}"
        folders.write_folder_atomically(newest, write)
        self.remove_older(newest)

    def remove_older(self, newest: Path) -> None:
        """Deletes the checkpoints older than an intact one, except the last `keep - 1` of them."""
        for old in [folder for folder in self.all() if folder <= newest][: -self.keep]:
            doomed = temporary_path(old)
            os.rename(old, doomed)
            shutil.rmtree(doomed)

    def newest_intact(self) -> Path | None:
        """Returns the newest intact checkpoint, or None for no checkpoints; a CheckpointError if all are damaged."""
        folders.remove_leftovers(self.folder)
        problem = None
        for folder in reversed(self.all()):
            try:
                folders.check_folder(folder)
                return folder
            except folders.DamagedFolderError as error:
                problem = problem or error
                logger.warning("%s Trying the previous checkpoint.", error)
        if problem is not None:
            raise CheckpointError(f"{problem} No earlier checkpoint is intact; start over with --overwrite.")
        return None


class TrainedObjects(NamedTuple):
    """The objects of a run that are saved in a checkpoint."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None = None
    scaler: torch.amp.GradScaler | None = None


def write_state(folder: Path, progress: TrainingProgress, data: dict, trained: TrainedObjects) -> None:
    """Writes the state of a run into a folder; `data` identifies the training data."""
    model, optimizer, average, scaler = trained
    save_model(model, str(folder / "model.safetensors"))
    states = {"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict() if scaler else None}
    with open(folder / "optimizer.pt", "wb") as file:  # given a path, PyTorch's errors lack the reason
        torch.save(states, file)
    if average is not None:
        save_file(average.tensors, folder / "average.safetensors")
    state = {"progress": asdict(progress), "data": data, "num_threads": torch.get_num_threads()}
    write_text_atomically(folder / PROGRESS, json.dumps(state, indent=2))


def read_checkpoint(folder: Path, data: dict, trained: TrainedObjects) -> TrainingProgress:
    """Loads a checkpoint; raises a CheckpointError if it belongs to another model or to other data than `data`."""
    model, optimizer, average, scaler = trained
    settings = [{**group} for group in optimizer.param_groups]
    state = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
    for name, value in data.items():
        if state["data"].get(name, value) != value:
            raise CheckpointError(
                f"{folder} cannot be resumed: the training data has another {name} than at the start of the run "
                f"({value} instead of {state['data'][name]}); restore the data or start over with --overwrite."
            )
    try:
        load_model(model, str(folder / "model.safetensors"))
        states = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
        optimizer.load_state_dict(states["optimizer"])
        for group, saved in zip(optimizer.param_groups, settings, strict=True):
            group.update(saved)  # the learning rates are those of the current training config
        if scaler is not None:
            scaler.load_state_dict(states["scaler"])
        if average is not None:
            copy_into(average.tensors, load_file(folder / "average.safetensors"))
    except (RuntimeError, KeyError, OSError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{folder} does not match the model of the config ({one_sentence(error)}).") from error
    return TrainingProgress(**state["progress"])


def has_saved(run: Path) -> bool:
    """Returns whether a run has saved more than the initial model; otherwise it starts from the beginning."""
    best = read_json_or_none(run / "best" / BEST_SCORES) if (run / "best").is_dir() else {"epoch": 0}
    is_trained = not isinstance(best, dict) or best.get("epoch") != 0
    return is_trained or (run / "last").is_dir() or bool(Checkpoints(run / "checkpoints").all())


def check_output_folder(config: TrainingConfig, resume: bool, overwrite: bool) -> bool:
    """Returns whether a run resumes the one in its folder (or starts a new one); writes nothing.

    Raises:
        FileExistsError, ConfigError: neither is possible.
    """
    folder, file = config.output_dir, config.output_dir / TRAINING_CONFIG
    if resume and overwrite:
        raise ConfigError("--resume continues a run and --overwrite deletes it; give one of the two.")
    if folders.is_empty(folder, besides=(LOCK,)):
        return False
    if not file.is_file() or not file.read_text(encoding="utf-8").startswith(RUN_HEADER):
        raise FileExistsError(f"training.output_dir: {folder} has other files than a training run; choose another.")
    if overwrite or not has_saved(folder):
        return False
    if not resume:
        raise FileExistsError(
            f"{folder} already has a run; add --resume to continue it, --overwrite to delete it and start again, or "
            "choose another training.output_dir."
        )
    changed = load_config_of_class(file, (), lambda model: type(config)).changes_that_break_resuming(config)
    if changed:
        problem = f"{', '.join(changed)} had another value in {file}"
        raise ConfigError(f"{folder} cannot be resumed: {problem}; use that value, or --overwrite to start again.")
    return True


def prepare_output_folder(config: TrainingConfig, resumes: bool) -> None:
    """Creates the folder and writes the training config; deletes an earlier run unless it is resumed.

    Checkpoints are deleted first, so that a killed deletion leaves nothing to resume, and the training config last.
    """
    folder = config.output_dir
    if not resumes:
        stages = [file.parent.name for file in folder.glob(f"*/{STAGE_FILE}")]
        for name in ("checkpoints", "tensorboard", *stages, "best", "last"):
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
        for name in (HISTORY, TRAINING_CONFIG):
            (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    folders.remove_leftovers(folder)
    save_training_config(config, folder / TRAINING_CONFIG)

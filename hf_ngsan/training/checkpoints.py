"""Resumable checkpoints: everything that a run needs to continue as if it had never stopped.

```python
checkpoints = Checkpoints(folder, keep=2)
checkpoints.save(100, lambda new: write_checkpoint(new, progress, data, model, optimizer))  # step-000000100
progress = read_checkpoint(checkpoints.newest_intact(), data, model, optimizer)
```
"""

import json
import logging
import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, load_model, save_file, save_model

from ..io.files import temporary_path, write_text_atomically
from ..io.folders import (
    REPLACED_PREFIX,
    DamagedFolderError,
    check_folder,
    find_folder,
    remove_leftovers,
    write_folder_atomically,
)
from ..io.messages import one_sentence
from .optimizer import WeightAverage, copy_into

logger = logging.getLogger(__name__)

PROGRESS = "progress.json"
"""File with the progress, what identifies the training data (`data`) and `num_threads`."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message names the folder and says what to do."""


@dataclass
class TrainingProgress:
    """The position of a run.

    Attributes:
        stage: stages completed.
        stage_epoch: epochs completed in the current stage.
        epoch: epochs completed in all.
        step_in_epoch: updates made in the current epoch.
        step: updates made in all.
        sums: statistics of the current epoch, summed over all processes.
        best_score, best_epoch: score and epoch, counted from 1, of the best evaluation so far.
        evaluations_since_best: evaluations since then, which early stopping counts.
        history: one entry per completed epoch.
    """

    stage: int = 0
    stage_epoch: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    best_score: float | None = None
    best_epoch: int | None = None
    evaluations_since_best: int = 0
    history: list[dict] = field(default_factory=list)


class Checkpoints:
    """The folder of a run's checkpoints, one folder `step-N` each.

    Args:
        folder: the folder.
        keep: number of checkpoints to keep.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def all(self) -> list[Path]:
        """Returns every checkpoint, the oldest first."""
        replaced = [path.name.removeprefix(REPLACED_PREFIX) for path in self.folder.glob(f"{REPLACED_PREFIX}step-*")]
        names = {*replaced, *(path.name for path in self.folder.glob("step-*"))}
        return [find_folder(self.folder / name) for name in sorted(names)]

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Adds the checkpoint of an update, whole or not at all, then removes old ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        newest = self.folder / f"step-{step:09d}"
        write_folder_atomically(newest, write)
        self.remove_older(newest)

    def remove_older(self, newest: Path) -> None:
        """Deletes the checkpoints before an intact one, except the last `keep - 1` of them."""
        for old in [folder for folder in self.all() if folder <= newest][: -self.keep]:
            doomed = temporary_path(old)
            os.rename(old, doomed)
            shutil.rmtree(doomed)

    def newest_intact(self) -> Path | None:
        """Returns the newest undamaged checkpoint, or None without any checkpoint.

        Raises:
            CheckpointError: all checkpoints are damaged.
        """
        remove_leftovers(self.folder)
        problems = []
        for folder in reversed(self.all()):
            try:
                check_folder(folder)
            except DamagedFolderError as error:
                problems.append(str(error))
                continue
            for problem in problems:
                logger.warning("%s Resuming from %s instead.", problem, folder)
            return folder
        if problems:
            raise CheckpointError(f"{problems[0]} No earlier checkpoint is intact either; start over with --overwrite.")
        return None


def write_checkpoint(
    folder: Path,
    progress: TrainingProgress,
    data: dict,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler | None = None,
    average: WeightAverage | None = None,
) -> None:
    """Fills a folder with the state of a run; `data` identifies the training data."""
    save_model(model, str(folder / "model.safetensors"))
    states = {"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict() if scaler else None}
    with open(folder / "optimizer.pt", "wb") as file:  # with a path, errors of PyTorch lack the reason
        torch.save(states, file)
    if average is not None:
        save_file(average.tensors, folder / "average.safetensors")
    state = {"progress": asdict(progress), "data": data, "num_threads": torch.get_num_threads()}
    write_text_atomically(folder / PROGRESS, json.dumps(state, indent=2))


def read_checkpoint(
    folder: Path,
    data: dict,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler | None = None,
    average: WeightAverage | None = None,
) -> TrainingProgress:
    """Loads a checkpoint of [`write_checkpoint`] into the same kinds of objects.

    Raises:
        CheckpointError: the checkpoint is of another model, or of other data than `data`.
    """
    state = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
    for name, value in data.items():
        if state["data"].get(name, value) != value:
            raise CheckpointError(
                f"{folder} cannot be resumed: the training data has another {name} than when the run began "
                f"({value} instead of {state['data'][name]}); restore the data or start over with --overwrite."
            )
    threads = state["num_threads"], torch.get_num_threads()
    if threads[0] != threads[1]:
        message = "%s was written with %d CPU threads and is resumed with %d: results may differ in the last digits."
        logger.warning(message, folder, *threads)
    try:
        load_model(model, str(folder / "model.safetensors"))
        states = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
        optimizer.load_state_dict(states["optimizer"])
        if scaler is not None:
            scaler.load_state_dict(states["scaler"])
        if average is not None:
            average.load(load_file(folder / "average.safetensors"))
    except (RuntimeError, KeyError, OSError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{folder} does not fit the model of this training config ({one_sentence(error)})."
        ) from error
    return TrainingProgress(**state["progress"])


def average_checkpoints(model: torch.nn.Module, folders: Sequence[Path]) -> None:
    """Gives a model the mean of the weights of some checkpoints (Vaswani et al. 2017, section 6.1).

    Args:
        model: model of the run, on the CPU; integer tensors become those of the last checkpoint.
        folders: checkpoints of [`write_checkpoint`].

    Raises:
        DamagedFolderError: a checkpoint is damaged.
        CheckpointError: a checkpoint is of another model.
    """
    sums: dict[str, torch.Tensor] = {}
    for folder in folders:
        check_folder(folder)
        try:
            load_model(model, str(folder / "model.safetensors"))
        except RuntimeError as error:
            raise CheckpointError(f"{folder} does not fit the model of this run ({one_sentence(error)}).") from error
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                sums[name] = sums.get(name, 0.0) + tensor.double()
    copy_into({name: model.state_dict()[name] for name in sums}, {name: sums[name] / len(folders) for name in sums})

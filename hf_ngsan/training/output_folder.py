"""The folder of a training run: checks before a run begins or resumes, its lock, and deletion of an earlier run.

A run begins in an empty folder or in place of an earlier run. Of that it deletes its own files and folders; files that
somebody put beside them stay. A run that ended before it saved anything is replaced by the next.
"""

import shutil
from pathlib import Path

from ..io.files import read_json_or_none
from ..io.folders import FolderLock, is_empty, remove_leftovers
from .checkpoints import Checkpoints
from .config import RUN_HEADER, ConfigError, TrainingConfig, load_training_config, save_training_config

TRAINING_CONFIG = "training_config.yaml"
HISTORY = "history.jsonl"
BEST_SCORES = "best_scores.json"
"""File of a run's best model with its epoch, 0 for the initial model, and its scores."""
STAGE_FILE = "end_of_stage.json"
"""File with the last update of a stage, in the folder of its best model."""
LOCK = ".lock"


def training_config_of(run: Path) -> Path:
    """Returns the path of the training config of a run, which need not exist."""
    return run / TRAINING_CONFIG


def has_saved(run: Path) -> bool:
    """Returns whether a run has saved something that it trained; otherwise it begins anew, resumed or not.

    Its model `best` may be there all the same: the one that it was to fine-tune.
    """
    best = read_json_or_none(run / "best" / BEST_SCORES) if (run / "best").is_dir() else {"epoch": 0}
    is_trained = not isinstance(best, dict) or best.get("epoch") != 0
    return is_trained or (run / "last").is_dir() or bool(Checkpoints(run / "checkpoints").all())


def check_output_folder(config: TrainingConfig, resume: bool, overwrite: bool) -> None:
    """Checks that a run may use its folder; writes nothing.

    Raises:
        FileExistsError: the folder has other files, or a run that has saved something while neither `resume` nor
            `overwrite` is given.
        ConfigError: `resume` and `overwrite` are both given, or the run to resume has other settings; the keys are
            named.
    """
    folder, file = config.output_dir, training_config_of(config.output_dir)
    if resume and overwrite:
        raise ConfigError("--resume continues a run and --overwrite deletes it; give one of the two.")
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"training.output_dir: {folder} is a file; choose another folder.")
    if is_empty(folder, besides=(LOCK,)):
        return
    if not file.is_file() or not file.read_text(encoding="utf-8").startswith(RUN_HEADER):
        raise FileExistsError(
            f"training.output_dir: {folder} holds files that are no training run (a {TRAINING_CONFIG} that a run wrote "
            "is missing); choose another folder."
        )
    if overwrite or not has_saved(folder):
        return
    if not resume:
        raise FileExistsError(
            f"{folder} already holds a run; add --resume to continue it, --overwrite to delete it and start again, or "
            "choose another training.output_dir."
        )
    changed = load_training_config(file, (), lambda model: type(config)).changes_that_break_resuming(config)
    if changed:
        of_schedule = any(key.endswith(".epochs") for key in changed)
        reason = " (the cosine schedule of every update depends on the number of epochs)" if of_schedule else ""
        raise ConfigError(
            f"{folder} cannot be resumed: {', '.join(changed)} differ{'s' if len(changed) == 1 else ''} from "
            f"{file}{reason}; use the value there, or --overwrite to start again."
        )


def prepare_output_folder(config: TrainingConfig, overwrite: bool) -> None:
    """Makes the folder and writes the training config; deletes an earlier run that has saved nothing, and with
    `overwrite` any."""
    folder = config.output_dir
    if overwrite or not has_saved(folder):
        delete_run(folder)
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    save_training_config(config, training_config_of(folder))


def locked(folder: Path) -> FolderLock:
    """Returns a lock of the folder, which is made; no other run writes it inside the `with` block.

    Raises:
        FileExistsError: another run holds the lock.
    """
    refusal = f"Another training is writing {folder}; wait for its end or choose another training.output_dir."
    return FolderLock(folder, FileExistsError(refusal), LOCK)


def delete_run(folder: Path) -> None:
    """Deletes what a run wrote, the checkpoints first, so that a killed deletion leaves nothing to resume, and the
    training config last, so that it can continue."""
    stages = [file.parent.name for file in folder.glob(f"*/{STAGE_FILE}")]
    for name in ("checkpoints", "tensorboard", *stages, "best", "last"):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
    for name in (HISTORY, TRAINING_CONFIG):
        (folder / name).unlink(missing_ok=True)

"""The folder of a training run: checks before a run begins or resumes, the lock, and deletion of an earlier run.

A run writes only into an empty folder or its own, and deletes only files that it wrote: those of [`KNOWN_FILES`] and
those listed in the marker file ([`claim_files`]). A run that ended before it saved anything is replaced by the next.
"""

import fnmatch
import json
import os
from collections.abc import Iterable
from pathlib import Path

from ..io.fields import read_json_or_none
from ..io.files import TEMPORARY_PREFIX, write_text_atomically
from ..io.folders import MANIFEST, REPLACED_PREFIX, FolderLock, is_empty, remove_leftovers
from .checkpoints import CHECKPOINT_FILES
from .config import ConfigError, TrainingConfig, load_training_config, save_training_config

TRAINING_CONFIG = "training_config.yaml"
BEST_SCORES = "best_scores.json"
"""File of a run's best model with its epoch, 0 for the initial model, and its scores."""
MARKER = ".training_run.json"
LOCK = ".lock"
KNOWN_FILES = (
    TRAINING_CONFIG,
    MARKER,
    LOCK,
    "history.jsonl",
    f"{TEMPORARY_PREFIX}*",
    *(f"checkpoints/step-*/{name}" for name in (MANIFEST, *CHECKPOINT_FILES)),
    f"checkpoints/{TEMPORARY_PREFIX}*",
    "tensorboard/*events.out.tfevents.*",
    "tensorboard/*hparams.yml",
)
"""Patterns of the files that every run writes, as paths in its folder; `*` also matches slashes."""


def training_config_of(run: Path) -> Path:
    """Returns the path of the training config of a run, which need not exist."""
    return run / TRAINING_CONFIG


def has_saved(run: Path) -> bool:
    """Returns whether a run has saved something; otherwise it begins anew, resumed or not.

    Its model `best` may be there all the same: the one that it was to fine-tune.
    """
    content = read_json_or_none(run / MARKER)
    return not isinstance(content, dict) or content.get("saved", True)


def check_output_folder(training_config: TrainingConfig, resume: bool, overwrite: bool) -> None:
    """Checks that a run may use its folder; writes nothing.

    Raises:
        FileExistsError: the folder has other files, or a run that has saved something while neither `resume` nor
            `overwrite` is given.
        ConfigError: `resume` and `overwrite` are both given, or the run to resume has other settings; the keys are
            named.
    """
    folder, config = training_config.output_dir, training_config_of(training_config.output_dir)
    if resume and overwrite:
        raise ConfigError("--resume continues a run and --overwrite deletes it; give one of the two.")
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"training.output_dir: {folder} is a file; choose another folder.")
    if is_empty(folder, besides=(LOCK, MARKER)):
        return
    if not config.is_file():
        raise FileExistsError(
            f"training.output_dir: {folder} holds files that are no training run ({TRAINING_CONFIG} is missing); "
            "choose another folder."
        )
    if (folder / "config.json").is_file():  # a shared model has a training config too
        raise FileExistsError(f"training.output_dir: {folder} holds a model and no run; choose another folder.")
    if overwrite or not has_saved(folder):
        refuse_foreign_files(folder)
        return
    if not resume:
        raise FileExistsError(
            f"{folder} already holds a run; add --resume to continue it, --overwrite to delete it and start again, or "
            "choose another training.output_dir."
        )
    changed = load_training_config(config, (), lambda model: type(training_config)).changes_that_break_resuming(
        training_config
    )
    if changed:
        of_schedule = any(key.endswith(".epochs") for key in changed)
        reason = " (the cosine schedule of every update depends on the number of epochs)" if of_schedule else ""
        raise ConfigError(
            f"{folder} cannot be resumed: {', '.join(changed)} differ{'s' if len(changed) == 1 else ''} from "
            f"{config}{reason}; use the value there, or --overwrite to start again."
        )


def prepare_output_folder(config: TrainingConfig, overwrite: bool) -> None:
    """Makes the folder, and writes training config and marker; deletes an earlier run that has saved nothing, and with
    `overwrite` any."""
    folder = config.output_dir
    if (overwrite or not has_saved(folder)) and not is_empty(folder, besides=(LOCK, MARKER)):
        delete_run(folder)
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    if is_empty(folder, besides=(LOCK, MARKER)):
        write_marker(folder, claimed_files(folder), saved=False)
    claim_files(folder, [])
    save_training_config(config, training_config_of(folder))


def locked(folder: Path) -> FolderLock:
    """Returns a lock of the folder, which is made; no other run writes it inside the `with` block.

    Raises:
        FileExistsError: another run holds the lock.
    """
    refusal = f"Another training is writing {folder}; wait for its end or choose another training.output_dir."
    return FolderLock(folder, FileExistsError(refusal), LOCK)


def claim_files(folder: Path, names: Iterable[str]) -> None:
    """Lists files of a run, by paths in its folder, in the marker; `--overwrite` may delete them."""
    known = claimed_files(folder)
    if not (folder / MARKER).is_file() or not known.issuperset(names):
        write_marker(folder, known.union(names), has_saved(folder))


def claim_saved(folder: Path) -> None:
    """Notes in the marker that a run saves something from now on."""
    if not has_saved(folder):
        write_marker(folder, claimed_files(folder), saved=True)


def write_marker(folder: Path, files: Iterable[str], saved: bool) -> None:
    content = {"files": sorted(files), "saved": saved}
    write_text_atomically(folder / MARKER, json.dumps(content, indent=1) + "\n")


def claimed_files(folder: Path) -> set[str]:
    content = read_json_or_none(folder / MARKER)
    names = content.get("files") if isinstance(content, dict) else None
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def refuse_foreign_files(folder: Path) -> None:
    """Raises a FileExistsError if a folder has files that no run wrote."""
    if not (folder / MARKER).is_file():
        raise FileExistsError(
            f"{folder} is not overwritten, as {MARKER} is missing, which training writes into its folders; choose "
            "another training.output_dir, or delete the folder yourself."
        )
    claimed = claimed_files(folder)
    places = {name: name.replace(REPLACED_PREFIX, "") for name in files_in(folder)}
    foreign = [name for name, place in places.items() if place not in claimed and not is_known(place)]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise FileExistsError(
            f"{folder} is not overwritten, as it holds files that no training wrote: {foreign[0]}{more}; move them, or "
            "choose another training.output_dir."
        )


def delete_run(folder: Path) -> None:
    """Deletes the files and folders of a run, training config and marker last, so a killed deletion can continue."""
    refuse_foreign_files(folder)
    config = training_config_of(folder)
    names = [name for name in files_in(folder) if name not in (LOCK, config.name, MARKER)]
    for name in names:
        (folder / name).unlink()
    for place in sorted({parent for name in names for parent in Path(name).parents} - {Path()}, reverse=True):
        (folder / place).rmdir()
    config.unlink()
    (folder / MARKER).unlink()


def files_in(folder: Path) -> list[str]:
    """Returns all files in a folder, recursively and relative to it, with links."""
    found = []
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        found += [(Path(place) / name).relative_to(folder).as_posix() for name in (*files, *links)]
    return sorted(found)


def is_known(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in KNOWN_FILES)

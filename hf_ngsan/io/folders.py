"""Atomic writing of folders: if the writer is killed, readers find the complete old folder or the complete new one.

```text
NAME                the folder
.incomplete-NAME    the folder being written; it is never read, and the next writer removes it
.replaced-NAME      the old folder, between two renames
NAME/manifest.json  sizes and checksums of its files, if they are checked later
```

A folder is written as `.incomplete-NAME`, flushed to disk, and renamed. If NAME exists, Linux exchanges the two names
in one step. Other systems need two renames, NAME to `.replaced-NAME` and then `.incomplete-NAME` to NAME. A writer that
is killed between them leaves the complete old folder as `.replaced-NAME`. Readers use it ([`find_folder`]), and the
next writer, which has the lock of the folder, renames it back ([`remove_leftovers`]).
"""

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from . import files
from .files import TEMPORARY_PREFIX, file_behind, flush_to_disk, sha256

MANIFEST = "manifest.json"
REPLACED_PREFIX = ".replaced-"
LOCK_SECONDS = 15  # processes of a killed command keep its lock until they notice its end
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # constants of linux/fcntl.h and linux/fs.h


class DamagedFolderError(ValueError):
    """A folder with missing or changed files; the message names the file and the damage."""


def write_folder_atomically(
    target: Path, write: Callable[[Path], object], manifest: bool = True, keep_others: bool = False
) -> None:
    """Replaces a folder atomically with one that `write` fills; for one process at a time.

    `manifest` adds a manifest for [`check_folder`]. `keep_others` keeps other files of the folder. Symbolic links are
    followed.
    """
    target = file_behind(target)
    restore(target)
    new = files.temporary_path(target)
    remove(new)
    new.mkdir(parents=True)
    try:
        with files.naming(target):
            write(new)
            files.give_usual_modes(new)
            if manifest:
                inside = sorted(path for path in new.iterdir() if path.is_file())
                sums = {file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in inside}
                files.write_text_atomically(new / MANIFEST, json.dumps(sums, indent=2))
            if keep_others and target.is_dir():
                written = os.listdir(new)
                options: dict[str, Any] = {"symlinks": True, "dirs_exist_ok": True}
                options["ignore"] = lambda place, _: written if place == str(target) else []
                shutil.copytree(target, new, **options)
            for path in [*(path for path in new.rglob("*") if path.is_file() or path.is_dir()), new]:
                flush_to_disk(path)
    except (Exception, KeyboardInterrupt):
        remove(new)
        raise
    put_in_place(new, target)


def replace_folder_contents(target: Path, write: Callable[[Path], object]) -> None:
    """Writes files into a folder, such as a model's, with [`write_folder_atomically`]; keeps its other files."""
    write_folder_atomically(target, write, manifest=False, keep_others=True)


def put_in_place(new: Path, target: Path) -> None:
    """Renames a complete folder to `target`, and removes the previous folder."""
    with suppress(OSError):
        target.rmdir()  # if it is empty
    old = new
    if not target.exists():
        os.rename(new, target)
    elif not exchange(new, target):
        old = replaced_path(target)
        os.rename(target, old)
        os.rename(new, target)
    flush_to_disk(target.parent)
    remove(old)


def exchange(first: Path, second: Path) -> bool:
    """Exchanges the names of two folders in one step; returns False if the system or file system cannot."""
    names = AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second)
    return sys.platform == "linux" and ctypes.CDLL(None).renameat2(*names, RENAME_EXCHANGE) == 0


@contextmanager
def turn_to_write(folder: Path) -> Iterator[bool]:
    """Yields whether a folder is missing and must be written in the `with` block, while other processes wait."""
    if folder.exists():
        yield False
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        yield not folder.exists()


def replaced_path(target: Path) -> Path:
    target = Path(os.path.realpath(target))  # the actual folder behind a link or `.`
    return target.with_name(f"{REPLACED_PREFIX}{target.name}")


def find_folder(target: Path) -> Path:
    """Returns the path of a folder for reading; after a killed writer, that of the old folder."""
    old = replaced_path(target)
    return old if not target.exists() and old.is_dir() else target


def restore(target: Path) -> None:
    """Undoes the first of two renames of a killed writer, or removes the old folder after the second.

    For writers only, which have the lock.
    """
    old = replaced_path(target)
    if not target.exists() and old.is_dir():
        os.rename(old, target)
    else:
        remove(old)


def remove_leftovers(folder: Path, besides: Collection[str] = ()) -> None:
    """Removes temporary files of killed writers in a folder, except `besides`, and restores replaced folders."""
    for path in folder.glob(f"{REPLACED_PREFIX}*"):
        restore(path.with_name(path.name.removeprefix(REPLACED_PREFIX)))
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        if path.name not in besides:
            remove(path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def check_new_folder(folder: Path) -> None:
    """Raises an OSError if a folder exists and is not empty, or cannot be created."""
    if not is_empty(folder):
        raise FileExistsError(f"{folder} already exists; choose another folder.")
    files.check_place(folder)


def is_empty(folder: Path, besides: Collection[str] = ()) -> bool:
    """Returns whether a path does not exist, or is a folder with only `besides` and temporary files."""
    if not folder.exists():
        return True
    return folder.is_dir() and all(name.startswith(TEMPORARY_PREFIX) or name in besides for name in os.listdir(folder))


def check_folder(folder: Path, names: Collection[str] = (), read: Collection[str] | None = None) -> None:
    """Raises a DamagedFolderError unless a folder has the files of its manifest, including `names`, by size.

    Files in `read` are also compared by checksum; all files if it is None.
    """
    manifest = files.read_json_or_none(folder / MANIFEST)
    if not isinstance(manifest, dict) or not manifest or {*names} - manifest.keys():
        raise DamagedFolderError(f"{folder} is incomplete: its {MANIFEST} is missing or lacks {', '.join(names)}.")
    for name, written in manifest.items():
        file = folder / name
        if not file.is_file() or not isinstance(written, dict):
            raise DamagedFolderError(f"{folder} is incomplete: {name} is missing, in it or in its {MANIFEST}.")
        is_read = read is None or name in read
        if file.stat().st_size != written["bytes"] or (is_read and sha256(file) != written["sha256"]):
            raise DamagedFolderError(f"{folder} is damaged: the contents of {name} have changed.")


class FolderLock:
    """A lock file in a folder, held by the main process of a command; otherwise `refusal` is raised."""

    def __init__(self, folder: Path, refusal: Exception, name: str = f"{TEMPORARY_PREFIX}lock") -> None:
        self.folder, self.refusal, self.name = folder, refusal, name
        self.lock = FileLock(folder / name)

    def acquire(self, seconds: float | None = None) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.lock.acquire(timeout=LOCK_SECONDS if seconds is None else seconds)
        except Timeout:
            raise self.refusal from None

    def release(self) -> None:
        if self.lock.is_locked:
            if self.name.startswith(TEMPORARY_PREFIX):
                with suppress(OSError):  # Windows cannot delete open files
                    os.unlink(self.lock.lock_file)
            self.lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

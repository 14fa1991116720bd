"""Writing files and folders so that a crash at any moment leaves the old one, the new one, never half of one."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

MANIFEST = "manifest.json"
TEMPORARY_PREFIX = ".incomplete-"


class DamagedFolderError(ValueError):
    """A folder whose files are not those that were written; the message names the file and what is wrong with it."""


def write_text_atomically(path: str | os.PathLike, text: str):
    """Write a UTF-8 text file, whole or not at all; missing parent folders are made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{path.name}")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    flush_to_disk(path.parent)


def write_folder_atomically(target: Path, write: Callable[[Path], None]):
    """Make a new folder: `write(temporary)` fills it, a manifest of sizes and checksums is added, a rename shows it.

    A folder of that name is replaced.
    """
    temporary = fill_temporary_folder(target, write)
    manifest = {file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)} for file in list_files(temporary)}
    write_text_atomically(temporary / MANIFEST, json.dumps(manifest, indent=2))
    flush_files_to_disk(temporary)
    shutil.rmtree(target, ignore_errors=True)
    os.rename(temporary, target)
    flush_to_disk(target.parent)


def replace_folder_contents(target: Path, write: Callable[[Path], None]):
    """Renew a folder in which one file at most has changed, by atomic renames of its files.

    A renewed model folder differs from the old one in its weights alone, so a reader, or a crash, meets the old model
    or the new one.
    """
    temporary = fill_temporary_folder(target, write)
    flush_files_to_disk(temporary)
    if not target.exists():
        os.rename(temporary, target)
    else:
        for file in list_files(temporary):
            os.replace(file, target / file.name)
        shutil.rmtree(temporary)
    flush_to_disk(target.parent)


def check_folder(folder: Path):
    """Compare a folder written by [`write_folder_atomically`] with its manifest.

    Raises:
        DamagedFolderError: the manifest or a file is missing, cut short or changed.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        written = {name: (entry["bytes"], entry["sha256"]) for name, entry in manifest.items()}
    except (FileNotFoundError, NotADirectoryError):
        raise DamagedFolderError(f"{folder} is incomplete: it has no {MANIFEST}.") from None
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        raise DamagedFolderError(f"{folder} is damaged: its {MANIFEST} cannot be read.") from None
    for name, (num_bytes, checksum) in written.items():
        file = folder / name
        if not file.is_file():
            raise DamagedFolderError(f"{folder} is incomplete: {name} is missing.")
        if file.stat().st_size != num_bytes:
            size = file.stat().st_size
            raise DamagedFolderError(f"{folder} is damaged: {name} has {size} of {num_bytes} bytes.")
        if sha256(file) != checksum:
            raise DamagedFolderError(f"{folder} is damaged: the contents of {name} have changed.")


def remove_leftovers(folder: Path):
    """Delete what an interrupted write left behind in a folder."""
    for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def fill_temporary_folder(target: Path, write: Callable[[Path], None]) -> Path:
    temporary = target.with_name(f"{TEMPORARY_PREFIX}{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write(temporary)
    return temporary


def list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def sha256(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def flush_files_to_disk(folder: Path):
    for file in list_files(folder):
        flush_to_disk(file)
    flush_to_disk(folder)


def flush_to_disk(path: Path):
    if os.name == "nt" and path.is_dir():  # Windows cannot open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

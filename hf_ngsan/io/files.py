"""Atomic writing of files: a crash at any moment leaves the complete old file or the complete new one."""

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from .messages import errno_of

TEMPORARY_PREFIX = ".incomplete-"


def write_text_atomically(path: str | os.PathLike, text: str) -> None:
    """Writes a UTF-8 text file atomically; for one process at a time, which overwrites leftovers of a killed one."""
    path = file_behind(Path(path))
    write_through(temporary_path(path), path, lambda file: file.write(text.encode()))


def write_output(path: str | os.PathLike, text: str) -> None:
    """Writes a UTF-8 text file chosen by the user; other processes may also write it."""
    write_file_atomically(path, lambda file: file.write(text.encode()))


def write_file_atomically(path: str | os.PathLike, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file atomically with `write(opened file)`; if several processes write it, the last one wins."""
    path = file_behind(Path(path))
    write_through(temporary_path(path.with_name(f"{secrets.token_hex(4)}-{path.name}")), path, write)


def write_through(temporary: Path, path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file under a temporary name and renames it; devices and pipes are written directly."""
    if is_stream(path):
        with open(path, "wb") as file:
            write(file)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with naming(path), open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        rename_durably(temporary, path)
    except (Exception, KeyboardInterrupt):
        temporary.unlink(missing_ok=True)
        raise


def check_place(path: Path) -> None:
    """Raises an OSError unless a file or folder can be created at this path, including its parent folders."""
    if is_stream(path):
        return
    folder = file_behind(path).absolute().parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise NotADirectoryError(f"{path} cannot be created: {folder} is not a writable folder; choose another path.")


def is_stream(path: Path) -> bool:
    """Returns whether a path is a device or a pipe, which must not be replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def file_behind(path: Path) -> Path:
    """Returns the target of a symbolic link, which may not exist; returns any other path unchanged."""
    return Path(os.path.realpath(path)) if path.is_symlink() and not is_stream(path) else path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file or folder to disk errors; C++ errors without a number are caused by a full disk."""
    try:
        yield
    except Exception as error:
        number = errno_of(error)
        if number is None and shutil.disk_usage(path.parent).free < 2**16:
            number = errno.ENOSPC
        if number is None or getattr(error, "filename", None) is not None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def temporary_path(path: Path) -> Path:
    """Returns the temporary name, in the same folder, under which a file or folder is written."""
    return path.with_name(f"{TEMPORARY_PREFIX}{path.name}")


def rename_durably(temporary: Path, path: Path) -> None:
    """Renames a flushed file or folder to its final name, and flushes the rename to disk."""
    os.replace(temporary, path)
    flush_to_disk(path.parent)


def flush_to_disk(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open folders
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows flushes writable files only
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def give_usual_modes(folder: Path, pattern: str = "*") -> None:
    """Sets the permissions of files to the default ones; safetensors makes files readable only for their owner."""
    probe = temporary_path(folder / "mode")
    probe.touch()
    usual = probe.stat().st_mode
    probe.unlink()
    for file in folder.rglob(pattern):
        if file.is_file() and not file.is_symlink():
            file.chmod(stat.S_IMODE(file.stat().st_mode | usual))


def read_json_or_none(file: Path) -> Any:
    """Returns the value in a JSON file; None if the file is missing or invalid."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None


def sha256(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class FileStamp(NamedTuple):
    """Size of a file, time of its last change in nanoseconds, and checksum of its contents."""

    num_bytes: int
    mtime_ns: int
    sha256: str


def stamp_of_content(content: bytes, mtime_ns: int) -> FileStamp:
    """Returns the stamp of contents that were already read; `mtime_ns` must have been read before them."""
    return FileStamp(len(content), mtime_ns, hashlib.sha256(content).hexdigest())


def is_unchanged(file: Path, stamp: FileStamp) -> bool:
    """Returns whether a file is unchanged; reads its contents only if the size is equal but the time differs."""
    status = file.stat()
    if status.st_size != stamp.num_bytes:
        return False
    return status.st_mtime_ns == stamp.mtime_ns or sha256(file) == stamp.sha256


def with_file_names(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields each name with a unique file name: its stem, with a number if the stem was already used."""
    taken = set()
    for name in names:
        stem = file_name = Path(name).stem
        number = 1
        while file_name in taken:
            number += 1
            file_name = f"{stem}-{number}"
        taken.add(file_name)
        yield name, file_name

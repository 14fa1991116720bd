"""One command at a time writes a folder."""

import os
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..ground.files import TEMPORARY_PREFIX

LOCK = f"{TEMPORARY_PREFIX}lock"
LOCK_SECONDS = 15
"""For which a command waits for its folder: the other processes of a killed one notice its end after seconds."""


class FolderLock:
    """A file in a folder, held by the main process of a command while its processes write there.

    Args:
        folder: made when the lock is taken.
        refusal: the error that says that another command has it.
        name: of the file. One with the prefix of temporary files goes when the lock is given back.
    """

    def __init__(self, folder: Path, refusal: Exception, name: str = LOCK) -> None:
        self.folder, self.refusal, self.name = folder, refusal, name
        self.lock = FileLock(folder / name)

    def acquire(self, seconds: float | None = None) -> None:
        """Takes the lock, or raises the refusal if another command keeps it for so long."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.lock.acquire(timeout=LOCK_SECONDS if seconds is None else seconds)
        except Timeout:
            raise self.refusal from None

    def release(self) -> None:
        """Gives the lock back, if this process has it."""
        if self.lock.is_locked:
            if self.name.startswith(TEMPORARY_PREFIX):
                with suppress(OSError):  # Windows deletes no open file
                    os.unlink(self.lock.lock_file)
            self.lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

"""Locks of folders: one command at a time writes a folder.

```python
with FolderLock(folder, ValueError(f"{folder} is in use; wait for the other command.")):
    ...
```
"""

import os
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from .files import TEMPORARY_PREFIX

LOCK = f"{TEMPORARY_PREFIX}lock"
LOCK_SECONDS = 15
"""How long a command waits for a folder. After a kill, the other processes of the killed command need some seconds to
notice its end, and hold the lock until then."""


class FolderLock:
    """A file in a folder, held by the main process of a command while its processes write there.

    Args:
        folder: the folder; made when the lock is taken.
        refusal: the error to raise if another command holds the lock.
        name: name of the file. One with the prefix of temporary files is deleted on release.
    """

    def __init__(self, folder: Path, refusal: Exception, name: str = LOCK) -> None:
        self.folder, self.refusal, self.name = folder, refusal, name
        self.lock = FileLock(folder / name)

    def acquire(self, seconds: float | None = None) -> None:
        """Takes the lock; raises the refusal if another command still holds it after some seconds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.lock.acquire(timeout=LOCK_SECONDS if seconds is None else seconds)
        except Timeout:
            raise self.refusal from None

    def release(self) -> None:
        """Releases the lock, if this process holds it."""
        if self.lock.is_locked:
            if self.name.startswith(TEMPORARY_PREFIX):
                with suppress(OSError):  # Windows deletes no open file
                    os.unlink(self.lock.lock_file)
            self.lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

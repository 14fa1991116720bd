"""Coordination of the processes of an extraction or indexing: the main process begins and ends the work.

```python
plan = on_main_process(accelerator, make_plan)  # in every process
```
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, broadcast_object_list

from ..io.folders import FolderLock
from ..io.launching import make_accelerator
from ..io.progress_display import ProgressDisplay
from .errors import ExtractionError

MAX_WAIT = timedelta(days=30)
"""How long a process that has finished its share waits for the others."""

Result = TypeVar("Result")


def lock_of(folder: Path, work: str) -> FolderLock:
    """Returns the lock of a folder; `work` names the command in messages."""
    return FolderLock(folder, ExtractionError(f"Another {work} is writing {folder}; wait for it or choose another."))


def extraction_accelerator() -> Accelerator:
    """Returns an accelerator with a long timeout, since images take unequal time."""
    return make_accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=MAX_WAIT)])


def default_num_workers(accelerator: Accelerator) -> int:
    """Returns the number of processors for each process on this machine, 4 at most."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes))
    return min(max(processors // local_processes, 1), 4)


def progress_display(name: str, total: int, accelerator: Accelerator) -> ProgressDisplay:
    """Returns a display of the share of a process, shown by the first process."""
    process, processes = accelerator.process_index + 1, accelerator.num_processes
    name = name if processes == 1 else f"{name}, process {process} of {processes}"
    return ProgressDisplay(name, total, shown=process == 1)


def on_main_process(accelerator: Accelerator, work: Callable[[], Result]) -> Result:
    """Returns the result of `work`, done by the main process, in every process.

    If it fails, the main process raises the error, and the others end quietly.
    """
    result: Any = None
    error: Exception | None = None
    if accelerator.is_main_process:
        try:
            result = work()
        except (ValueError, OSError) as caught:
            error = caught
    if accelerator.num_processes > 1:
        with ending_with_others():
            result, has_failed = broadcast_object_list([result, error is not None])
        if has_failed and not accelerator.is_main_process:
            raise SystemExit(2)
    if error is not None:
        raise error
    return result


def on_every_process(accelerator: Accelerator, work: Callable[[], Result]) -> Result:
    """Returns the result of `work`, run by the main process first and, only if that succeeds, by the others."""
    done: list[Result] = []
    on_main_process(accelerator, lambda: done.append(work()))
    return done[0] if accelerator.is_main_process else work()


def wait_for_everyone(accelerator: Accelerator) -> None:
    with ending_with_others():
        accelerator.wait_for_everyone()


@contextmanager
def ending_with_others() -> Iterator[None]:
    """Ends this process if another one ends inside the `with` block: without a message if they share the terminal."""
    try:
        yield
    except RuntimeError as error:  # the message for a lost connection depends on the backend of torch
        if os.environ.get("LOCAL_WORLD_SIZE", "") == os.environ.get("WORLD_SIZE"):
            raise SystemExit(2) from error
        raise ExtractionError(
            "Another process of this extraction has ended before its share was done; fix what it says, and run the "
            "same command again to resume."
        ) from error

"""Several processes of one command: `hf-ngsan train --num-processes 2` starts itself again under `torchrun`.

Each process leaves its error in a file; the parent prints equal errors once and ends with the exit code of the first.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelerate import Accelerator

logger = logging.getLogger(__name__)

MESSAGES = "HF_NGSAN_MESSAGES"
"""Environment variable: the folder in which each process leaves its error."""
SECONDS_BETWEEN_LOOKS = 0.5
"""Interval at which a process checks that its parent still runs."""


def launch_processes(
    command: list[str], num_processes: int | None = None, check: Callable[[], None] | None = None
) -> None:
    """Replaces this process by `num_processes` ones of the same command, unless it is one of them already.

    `accelerate launch --cpu --num_processes N` silently starts a single process without MPI (accelerate 1.15); with
    `num_processes=None` it gets its N processes here. Without a GPU and without `--cpu` a warning says that there is
    only one. `torchrun` starts the processes; its report of a failed process is left out, since that process prints its
    own error.

    Args:
        command: what follows `python`: a script or `-m` and a module, and the arguments.
        num_processes: their number; None = that of a parent `accelerate launch`, else 1.
        check: called before several are started, so that one process alone prints its error.
    """
    if "WORLD_SIZE" in os.environ:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            end_with_parent()
        return
    if num_processes is None:
        num_processes = processes_asked_of_accelerate()
        if num_processes > 1 and os.environ.get("ACCELERATE_USE_CPU", "").lower() != "true":
            logger.warning(
                "accelerate launch has started one process, not %d; on a machine without a GPU it needs --cpu: "
                "accelerate launch --cpu --num_processes %d ...",
                num_processes,
                num_processes,
            )
            num_processes = 1
    if num_processes > 1:
        if check is not None:
            check()
        torchrun = ["-m", "hf_ngsan.io.launching", "--standalone", "--nproc-per-node", str(num_processes)]
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        sys.stdout.flush()
        line = [sys.executable, *torchrun, *command]
        if os.name == "nt":  # Windows has no exec: the shell would believe that the command has ended
            sys.exit(subprocess.run(line, check=False).returncode)
        os.execv(sys.executable, line)


def end_with_parent() -> None:
    """Ends this process soon after the one that started it has ended, even if that was killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        os._exit(128 + 9)  # as after SIGKILL, which Windows has no name for

    threading.Thread(target=watch, name="end_with_parent", daemon=True).start()


def processes_asked_of_accelerate() -> int:
    """Returns the N of a parent `accelerate launch ... --num_processes N`; 1 if there is no such parent."""
    if "ACCELERATE_USE_CPU" not in os.environ:
        return 1
    import psutil

    command = " ".join(psutil.Process(os.getppid()).cmdline())
    asked = re.search(r"accelerate.*\blaunch\b.*\s--num[_-]processes[ =](\d+)\s", command)
    return int(asked[1]) if asked else 1


def make_accelerator(**options: Any) -> "Accelerator":
    """Returns an `accelerate.Accelerator` that joins the processes of `torchrun` on a machine without a GPU too.

    Accelerate (1.15) refuses a second precision in the same process; here the last one counts.

    Args:
        options: for `Accelerator`.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, is_initialized

    precision = options.get("mixed_precision")
    if precision is not None and is_initialized() and AcceleratorState().mixed_precision != precision:
        AcceleratorState._reset_state()
    return Accelerator(cpu=not torch.accelerator.is_available(), **options)


def is_main_process() -> bool:
    """Returns whether this is the first of the processes of a command, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def leave_process_group() -> None:
    """Closes the connections between the processes of a command, if it has several."""
    from accelerate import PartialState

    PartialState().destroy_process_group()


def tell_error(sentence: str) -> None:
    """Prints an error, or leaves it to the parent of several processes, which prints it once."""
    folder = os.environ.get(MESSAGES)
    if folder is not None:
        with suppress(OSError):
            Path(folder, os.environ.get("RANK", "0").zfill(6)).write_text(sentence, encoding="utf-8")
            return
    print(f"hf-ngsan: error: {sentence}", file=sys.stderr)


def has_lost_another(error: Exception) -> bool:
    """Returns whether an error is only a consequence of the end of another process, which reports its own error."""
    if "WORLD_SIZE" not in os.environ or not isinstance(error, RuntimeError):
        return False
    from torch.distributed import DistError

    return isinstance(error, DistError) or "gloo" in str(error)


def torchrun() -> int:
    """Runs the command `torchrun`; prints the errors of its processes, equal ones once.

    Returns:
        The exit code of the process that failed first, or 0.
    """
    with tempfile.TemporaryDirectory(prefix="hf-ngsan-") as folder:
        os.environ[MESSAGES] = folder
        code = run_processes()
        for sentence in dict.fromkeys(file.read_text(encoding="utf-8") for file in sorted(Path(folder).iterdir())):
            print(f"hf-ngsan: error: {sentence}", file=sys.stderr)
    return code


def run_processes() -> int:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    logging.disable(logging.CRITICAL)  # here alone: the processes that it starts have loggers of their own
    try:
        main()
    except ChildFailedError as error:
        failures = sorted(error.failures.values(), key=lambda failure: failure.timestamp)  # in whole seconds
        for failure in failures:
            if failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM:  # with which torchrun ends the others
                name = signal.Signals(-failure.exitcode).name
                print(f"hf-ngsan: error: process {failure.local_rank} was ended by {name}.", file=sys.stderr)
                return 128 - failure.exitcode
        return next((failure.exitcode for failure in failures if failure.exitcode > 0), 128 + signal.SIGTERM)
    except SignalException as error:  # Ctrl-C, for example
        return 128 + error.sigval
    return 0


if __name__ == "__main__":
    sys.exit(torchrun())

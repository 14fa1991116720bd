"""Runs a command in several processes: `hf-ngsan train --num-processes 2` starts itself twice, like torchrun.

Each process writes its error into a file; the parent prints equal errors once and exits with the code of the first.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelerate import Accelerator

MESSAGES = "HF_NGSAN_MESSAGES"  # environment variable: the folder for the errors of the processes
SECONDS_BETWEEN_LOOKS = 0.2
MAX_IMAGES_PER_SHARD = 256
MIN_SHARDS = 64  # minimum shards of a folder with enough images, so that many processes get equal shares
SECONDS_TO_END = 2.0  # seconds after one of them has failed


def launch_processes(
    command: list[str], num_processes: int | None = None, check: Callable[[], None] = lambda: None
) -> int | None:
    """Runs `python *command` in several processes, unless this is one of them or the only one.

    `check` is called first, so that only one process prints its error. Returns the exit code of the processes; returns
    None in each of them, which then do the work.
    """
    if MESSAGES in os.environ:
        end_with_parent()
    elif "WORLD_SIZE" not in os.environ and num_processes is not None and num_processes > 1:
        check()
        sys.stdout.flush()
        return run_processes(command, num_processes)
    return None


def run_processes(command: list[str], number: int) -> int:
    """Runs processes until all have ended; a failing one ends the others. Returns the first nonzero exit code or 0."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="hf-ngsan-") as folder:
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), MESSAGES: folder}
        shared |= {"WORLD_SIZE": str(number), "LOCAL_WORLD_SIZE": str(number)}
        shared = {"OMP_NUM_THREADS": "1", **os.environ, **shared}
        processes = [
            subprocess.Popen([sys.executable, *command], env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(number)
        ]
        try:
            end = float("inf")
            while None in [process.poll() for process in processes] and time.monotonic() < end:
                if any(process.returncode for process in processes):
                    end = min(end, time.monotonic() + SECONDS_TO_END)
                time.sleep(SECONDS_BETWEEN_LOOKS)
        finally:
            for process in processes:
                process.terminate()
            codes = [process.wait() for process in processes]
        for message in dict.fromkeys(file.read_text(encoding="utf-8") for file in sorted(Path(folder).iterdir())):
            print(f"hf-ngsan: error: {message}", file=sys.stderr)
    for rank, code in enumerate(codes):
        if code < 0 and -code != signal.SIGTERM:  # the others are ended with SIGTERM
            print(f"hf-ngsan: error: process {rank} was ended by {signal.Signals(-code).name}.", file=sys.stderr)
            return 128 - code
    return max(0, *codes) or (128 + signal.SIGTERM if any(codes) else 0)


def end_with_parent() -> None:
    """Ends this process soon after its parent has ended, even if the parent was killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        os._exit(128 + 9)  # as after SIGKILL, which has no name on Windows

    threading.Thread(target=watch, name="end_with_parent", daemon=True).start()


def make_accelerator(**options: Any) -> "Accelerator":
    """Returns an Accelerator that also joins processes without a GPU; the last requested precision counts."""
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, is_initialized

    precision = options.get("mixed_precision")
    if precision is not None and is_initialized() and AcceleratorState().mixed_precision != precision:
        AcceleratorState._reset_state()
    return Accelerator(cpu=not torch.accelerator.is_available(), **options)


class OneProcess:
    """Stands for the Accelerator of a process that works alone, on a CPU and without torch."""

    num_processes, process_index, is_main_process = 1, 0, True

    def wait_for_everyone(self) -> None:
        pass

    end_training = wait_for_everyone


def extraction_accelerator() -> "Accelerator":
    from accelerate.utils import InitProcessGroupKwargs

    waiting = InitProcessGroupKwargs(timeout=timedelta(days=30))  # of a process that has finished its share
    return make_accelerator(kwargs_handlers=[waiting])


def on_main_process(accelerator: "Accelerator | OneProcess", work: Callable[[], Any]) -> Any:
    """Returns the result of `work`, done by the main process, in every process; an error of it ends all."""
    results: list[Any] = [work() if accelerator.is_main_process else None]
    if accelerator.num_processes > 1:
        from accelerate.utils import broadcast_object_list

        broadcast_object_list(results)
    return results[0]


def default_images_per_shard(num_images: int, batch_size: int, largest: int = MAX_IMAGES_PER_SHARD) -> int:
    """Returns a multiple of the batch size that gives processes equal shares and limits the loss of a kill."""
    shard_size = min(max(num_images // MIN_SHARDS, 1), largest)
    return -(-shard_size // batch_size) * batch_size


def leave_process_group() -> None:
    """Closes the connections between the processes of a command, if it has several."""
    from accelerate import PartialState

    PartialState().destroy_process_group()


def tell_error(message: str) -> None:
    """Prints an error, or passes it to the parent of several processes, which prints it once."""
    folder = os.environ.get(MESSAGES)
    if folder is not None and os.path.isdir(folder):
        Path(folder, os.environ.get("RANK", "0").zfill(6)).write_text(message, encoding="utf-8")
    else:
        print(f"hf-ngsan: error: {message}", file=sys.stderr)


def has_lost_another(error: Exception) -> bool:
    """Returns whether an error is a consequence of the end of another process, which reports the original error."""
    if "WORLD_SIZE" not in os.environ or not isinstance(error, RuntimeError):
        return False
    from torch.distributed import DistError

    return isinstance(error, DistError) or "gloo" in str(error)

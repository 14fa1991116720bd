"""Work that runs in a separate process and is killed at a chosen file operation, as by `kill -9`."""

import builtins
import io
import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import wraps
from pathlib import Path

DIED = 137
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    **{"os.chmod": 2, "os.link": 2, "os.mkdir": 2, "os.remove": 1, "os.rename": 2, "os.rmdir": 1, "os.symlink": 2},
    **{"os.truncate": None, "os.utime": 3},
}
"""Audit events of Python's functions that change folders, and which of their arguments is a folder's descriptor."""


class FileOperations:
    """Records every operation that changes files in a folder, and ends the process before number `fatal`, from 1.

    A file that is opened for writing counts twice: before it is opened, and when it exists but is empty. A file that
    is written without Python counts three times: before, half written, and complete.
    """

    def __init__(self, folder: Path, fatal: int | None = None) -> None:
        self.folder, self.fatal = str(folder), fatal
        self.noted: list[str] = []

    def watch(self) -> None:
        """Starts to count; cannot be undone in a process."""
        import safetensors.torch
        import torch
        from transformers import PreTrainedTokenizerFast

        from hf_ngsan.io import folders

        sys.addaudithook(self.hear)
        builtins.open = io.open = self.opening(io.open)
        os.fsync = self.flush
        folders.exchange = self.exchanging(folders.exchange)
        safetensors.torch.serialize_file = self.writing(safetensors.torch.serialize_file)
        torch.save = self.writing(torch.save)
        PreTrainedTokenizerFast._save_pretrained = self.saving(PreTrainedTokenizerFast._save_pretrained)

    def note(self, operation: str, path: object) -> None:
        self.noted.append(f"{operation} {os.path.relpath(os.fsdecode(path), self.folder)}")
        if len(self.noted) == self.fatal:
            os._exit(DIED)

    def is_inside(self, path: object) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and os.path.abspath(os.fsdecode(path)).startswith(
            self.folder
        )

    def hear(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            if flags & WRITING and self.is_inside(path):
                self.note(event, path)
        elif event in CHANGES:
            descriptor = CHANGES[event]
            in_open_folder = descriptor is not None and arguments[descriptor] not in (-1, None)
            if in_open_folder or self.is_inside(arguments[0]):
                self.note(event, arguments[0])

    def opening(self, original: Callable) -> Callable:
        @wraps(original)
        def opened(path, mode="r", *arguments, **options):
            file = original(path, mode, *arguments, **options)
            if set(mode) & set("wax+") and self.is_inside(path):
                self.note("opened", path)
            return file

        return opened

    def flush(self, descriptor: int) -> None:
        """Records `os.fsync` in a folder and skips it; a process that is killed does not need it."""
        self.note("fsync", self.folder)

    def exchanging(self, original: Callable) -> Callable:
        @wraps(original)
        def exchanged(first, second):
            self.note("exchange", second)
            return original(first, second)

        return exchanged

    def writing(self, original: Callable) -> Callable:
        @wraps(original)
        def written(content, path, *arguments, **options):
            if not self.is_inside(path):
                return original(content, path, *arguments, **options)
            self.note("write", path)
            if len(self.noted) + 1 == self.fatal:
                original(content, path, *arguments, **options)
                os.truncate(path, os.path.getsize(path) // 2)
            self.note("half written", path)
            result = original(content, path, *arguments, **options)
            self.note("written", path)
            return result

        return written

    def saving(self, original: Callable) -> Callable:
        @wraps(original)
        def saved(tokenizer, save_directory, *arguments, **options):
            self.note("write", os.path.join(save_directory, "tokenizer.json"))
            return original(tokenizer, save_directory, *arguments, **options)

        return saved


def in_process(work: Callable[[], int], folder: Path, fatal: int | None = None, record: Path | None = None) -> int:
    """Runs work in a fork of this process, in a folder; returns its exit code, `DIED` if it was killed.

    The list of operations is written as JSON to a file `record`, the output of the work to a file next to the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child == 0:
        code = 70
        try:
            output = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(folder)
            operations = FileOperations(folder, fatal)
            operations.watch()
            code = work()
            if record is not None:
                record.write_text(json.dumps(operations.noted))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def workers(*modules: str) -> ProcessPoolExecutor:
    """Returns processes that have imported modules and have a single thread, so that they can fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context)

"""Output for the user of a command: errors and warnings on one line, without a traceback, and progress."""

import difflib
import errno
import logging
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
MAX_LENGTH = 2_000  # maximum characters of a message, which may quote a long value from a file
SECONDS_BETWEEN_LINES = 30.0


def sentence(error: Exception) -> str:
    """Returns the message of an error on one line; for an OSError, the file and the reason."""
    number = errno_of(error)
    if number in FULL_DISK:
        places = [f"{cause.filename}: " for cause in chain(error) if isinstance(cause, OSError) and cause.filename]
        remedy = "Free some space and run the same command again; training continues with --resume."
        return f"{''.join(places[:1])}{os.strerror(number)}. {remedy}"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}."
    return shortened(" ".join(str(error).split()), MAX_LENGTH)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = ".") -> str:
    """Returns the end of a message about an unknown name: a question with the most similar name, or `otherwise`."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else otherwise


def shortened(text: str, longest: int) -> str:
    """Returns a text truncated to `longest` characters, with lone surrogates as escapes."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return cut.encode(errors="backslashreplace").decode()


def printable(name: str) -> str:
    """Returns a file name with control characters and invalid UTF-8 replaced by U+FFFD."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "\ufffd", os.fsencode(name).decode(errors="replace"))


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error, its cause or context, and so on, each once, because causes of gRPC errors form a cycle."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def errno_of(error: Exception) -> int | None:
    """Returns the operating system's error number of an error, if any; safetensors has it only in its message."""
    for cause in chain(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            return cause.errno
        quoted = re.search(r"\(os error (\d+)\)|\[Errno (\d+)\]", str(cause))
        if quoted:
            return int(quoted[1] or quoted[2])
    return None


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether an error or one of its causes is a lack of memory, of the machine or a device."""
    return any(
        isinstance(cause, MemoryError)
        or type(cause).__name__ == "OutOfMemoryError"  # torch's, which is not imported here
        or "DefaultCPUAllocator" in str(cause)
        or getattr(cause, "errno", None) == errno.ENOMEM
        for cause in chain(error)
    )


def type_and_reason(error: Exception) -> str:
    """Returns the type of an error in user code and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def one_sentence(error: Exception) -> str:
    """Returns the first line of an error's message without its full stop, for quoting it in another message."""
    from huggingface_hub.errors import StrictDataclassError

    if isinstance(error, AttributeError | LookupError | TypeError):  # their messages are for programmers
        return type_and_reason(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, StrictDataclassError):  # its last line is the message of the original error
        return re.sub(r"^\w+Error: ", "", lines[-1]).rstrip(".")
    return lines[0].rstrip(".")


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Prints warnings on one line, without their source location, inside the `with` block."""
    usual = warnings.formatwarning

    warnings.formatwarning = lambda message, *place, **more: f"Warning: {' '.join(str(message).split())}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


class ProgressDisplay:
    """Shows the progress of some work: a bar in a terminal, otherwise a log line every 30 seconds."""

    def __init__(self, name: str, total: int, done: int = 0, unit: str = "images", shown: bool = True) -> None:
        from tqdm.auto import tqdm

        self.name, self.total, self.unit, self.shown = name, total, unit, shown
        self.bar = tqdm(desc=name, total=total, initial=done, unit=f" {unit}", leave=False, disable=not shown or None)
        self.status = ""
        self.done_before = done
        self.started_at = self.last_line_at = time.monotonic()

    def __enter__(self) -> "ProgressDisplay":
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.close()

    def update(self, done: int, status: str | None = None) -> None:
        """Shows the number of finished items and a status (by default, the speed and the remaining time)."""
        if status is not None:
            self.status = status
            self.bar.set_postfix_str(status)
        self.bar.update(done - self.bar.n)
        now = time.monotonic()
        if self.shown and self.bar.disable and now - self.last_line_at >= SECONDS_BETWEEN_LINES:
            self.last_line_at = now
            pace = (done - self.done_before) / (now - self.started_at)
            time_left = self.bar.format_interval((self.total - done) / pace) if pace else "?"
            shown = self.status or f"{pace:.1f} {self.unit}/s, {time_left} left"
            logger.info("%s, %d of %d %s, %s", self.name, done, self.total, self.unit, shown)

"""The exceptions of the package `data`."""

from collections.abc import Iterator
from contextlib import contextmanager


class DataError(ValueError):
    """Data that cannot be used: the message names the file, row and field, and says what to do."""


class MissingSplitError(DataError):
    """A dataset without the requested split."""


def reason_of(error: BaseException) -> str:
    """Returns the message of an error in one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextmanager
def as_data_error() -> Iterator[None]:
    """Turns ValueErrors inside the `with` block, such as those of `hf_ngsan.io`, into DataErrors."""
    try:
        yield
    except ValueError as error:
        raise DataError(str(error)) from None

"""The exceptions of the package `data`."""

from collections.abc import Iterator
from contextlib import contextmanager


class DataError(ValueError):
    """Data that cannot be used: the message names the file, row and field, and says what to do."""


class MissingSplitError(DataError):
    """A dataset that has other splits than the one asked for."""


def reason_of(error: BaseException) -> str:
    """Returns what an error says, in one line and without its full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextmanager
def as_data_error() -> Iterator[None]:
    """Turns the ValueErrors of checks on the ground floor, inside the `with` block, into DataErrors."""
    try:
        yield
    except ValueError as error:
        raise DataError(str(error)) from None

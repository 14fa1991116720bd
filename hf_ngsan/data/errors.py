"""The exceptions of the package `data`."""

from collections.abc import Iterator
from contextlib import contextmanager


class DataError(ValueError):
    """Data that cannot be used; the message names the file, row and field, and a remedy."""


class MissingSplitError(DataError):
    """A dataset without the requested split."""


def note_of_left_out(problem: str, skip_errors: bool, option: str = "--skip-errors") -> str:
    """Returns a note that data with a problem were left out; raises a DataError unless `skip_errors`."""
    if not skip_errors:
        raise DataError(f"{problem} ({option} leaves them out).")
    return f"{problem}; they were left out."


def reason_of(error: BaseException) -> str:
    """Returns the message of an error on one line, without its full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextmanager
def naming_damage(where: str) -> Iterator[None]:
    """Turns any error inside the `with` block into a DataError that names the damaged file."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # libraries raise many types
        raise DataError(f"{where} cannot be read ({reason_of(error)[:200]}); replace it or leave it out.") from error

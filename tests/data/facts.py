"""Errors are checked by the facts that they contain, not by their wording."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hf_ngsan.data import DataError


@contextmanager
def fails_naming(*facts: object) -> Iterator[None]:
    """Expects, inside the `with` block, a DataError of one sentence that contains all facts."""
    with pytest.raises(DataError) as error:
        yield
    message = str(error.value)
    assert [fact for fact in map(str, facts) if fact not in message] == []
    assert "\n" not in message and message.endswith((".", "?"))

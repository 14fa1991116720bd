"""A table of cases as one test."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence

import pytest
import torch

CAPTURED = {
    "capfd": lambda fixture: fixture.readouterr(),
    "caplog": lambda fixture: fixture.clear(),
    "capsys": lambda fixture: fixture.readouterr(),
    "recwarn": lambda fixture: fixture.clear(),
}
"""What forgets the rows before: the fixtures that hold what a test wrote or warned."""


def each_row(names: str | Sequence[str], rows: Iterable) -> Callable[[Callable], Callable]:
    """Runs a test for every row of a table and names the row that fails.

    As `pytest.mark.parametrize`, but all rows are one test: they share its fixtures, except that every row has a
    `tmp_path` and a `monkeypatch` of its own, sees only what itself wrote, and starts from the same random numbers.

    Args:
        names: arguments of the test, separated by commas or in a list.
        rows: a tuple with a value for each name; with one name, the values.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [dict(zip(names, row if len(names) > 1 else (row,), strict=True)) for row in rows]
    if not table:
        raise ValueError("a test of no rows tests nothing")

    def decorate(test: Callable) -> Callable:
        @functools.wraps(test)
        def run(**fixtures):
            skipped, random_state = None, torch.get_rng_state()
            for number, row in enumerate(table):
                torch.set_rng_state(random_state)
                for name in CAPTURED.keys() & fixtures.keys():
                    CAPTURED[name](fixtures[name])
                given = {**fixtures, **row}
                if "tmp_path" in fixtures:
                    given["tmp_path"] = fixtures["tmp_path"] / f"row-{number}"
                    given["tmp_path"].mkdir()
                try:
                    if "monkeypatch" in fixtures:
                        with fixtures["monkeypatch"].context() as given["monkeypatch"]:
                            test(**given)
                    else:
                        test(**given)
                except pytest.skip.Exception as reason:
                    skipped = reason
                except Exception as error:
                    error.add_note(f"in row {number}: {row}")
                    raise
            if skipped and len(table) == 1:
                raise skipped

        signature = inspect.signature(test)
        fixtures = [one for one in signature.parameters.values() if one.name not in names]
        run.__signature__ = signature.replace(parameters=fixtures)
        return run

    return decorate

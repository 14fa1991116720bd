"""A table of cases as one test."""

import functools
import inspect
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

KEYWORD = inspect.Parameter.KEYWORD_ONLY
CAPTURED = {
    "capfd": lambda fixture: fixture.readouterr(),
    "caplog": lambda fixture: fixture.clear(),
    "capsys": lambda fixture: fixture.readouterr(),
    "recwarn": lambda fixture: fixture.clear(),
}
"""Fixtures whose content is reset between rows: they store what the test wrote or warned."""


def each_row(names: str | Sequence[str], rows: Iterable) -> Callable[[Callable], Callable]:
    """Runs a test for every row of a table and names the row that fails.

    It is used like `pytest.mark.parametrize`, but all rows are one test and share fixtures. For every row, `tmp_path`
    is as the fixtures left it, `monkeypatch` is undone, captured output is empty, and random numbers are the same. If a
    row changes an object of a fixture, later rows get the changed object.

    Args:
        names: arguments of the test, separated by commas or in a list.
        rows: a tuple with a value for each name; with one name, the values.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [dict(zip(names, row if len(names) > 1 else (row,), strict=True)) for row in rows]
    if not table:
        raise ValueError("a test of no rows tests nothing")

    def decorate(test: Callable) -> Callable:
        expected = [name for name in inspect.signature(test).parameters if name not in names]

        @functools.wraps(test)
        def run(tmp_path=None, **fixtures):
            if "tmp_path" in expected:
                fixtures["tmp_path"] = tmp_path
            skipped, random_state = [], torch.get_rng_state()
            with TemporaryDirectory() as place:
                actual = Path(place, "found")
                if tmp_path is not None:
                    shutil.copytree(tmp_path, actual, symlinks=True)
                for number, row in enumerate(table):
                    torch.set_rng_state(random_state)
                    for name in CAPTURED.keys() & fixtures.keys():
                        CAPTURED[name](fixtures[name])
                    if number and tmp_path is not None:
                        make_equal(tmp_path, actual)
                    with ExitStack() as undone:
                        inputs = {**fixtures, **row}
                        if "monkeypatch" in fixtures:
                            inputs["monkeypatch"] = undone.enter_context(fixtures["monkeypatch"].context())
                        try:
                            test(**inputs)
                        except pytest.skip.Exception as reason:
                            skipped.append(reason)
                        except Exception as error:
                            error.add_note(f"in row {number}: {row}")
                            raise
            if len(skipped) == len(table):
                raise skipped[0]

        # without fixtures the folder is empty; Hypothesis also rejects these fixtures
        run.__signature__ = inspect.Signature(
            [inspect.Parameter(name, KEYWORD) for name in dict.fromkeys(["tmp_path", *expected] if expected else [])]
        )
        return run

    return decorate


def make_equal(folder: Path, other: Path) -> None:
    """Replaces the content of a folder by that of another."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(other, folder, symlinks=True, dirs_exist_ok=True)

"""The validation rows that a run separates."""

from types import SimpleNamespace

import pytest
from datasets import Dataset

from hf_ngsan.data.errors import MissingSplitError
from hf_ngsan.training import TrainingConfig
from hf_ngsan.training.run import load_split, with_validation_rows

ROWS = Dataset.from_dict({"number": range(20)})


def load(split):
    if split != "train":
        raise MissingSplitError(f"There is no split {split}.")
    return ROWS


def test_rows_are_set_aside_where_there_is_no_validation_split():
    """The same rows for training, and for every later evaluation."""
    task = SimpleNamespace(load_rows=load, unit="rows", config=TrainingConfig())
    rest, chosen = with_validation_rows(task, ROWS, "validation")
    assert sorted([*rest["number"], *chosen["number"]]) == [*range(20)]
    assert load_split(load, "validation", "x")["number"][:] == chosen["number"][:] != []
    for function in (lambda: with_validation_rows(task, ROWS, "dev"), lambda: load_split(load, "dev", "x")):
        with pytest.raises(MissingSplitError):
            function()

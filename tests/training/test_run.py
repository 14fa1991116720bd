"""What a run takes from its task, and the rows that it sets aside."""

from types import SimpleNamespace

import pytest
from datasets import Dataset

from hf_ngsan.data.errors import MissingSplitError
from hf_ngsan.training import Task, TrainingConfig
from hf_ngsan.training.config import ConfigError
from hf_ngsan.training.run import check_tracker, load_split, with_validation_rows

ROWS = Dataset.from_dict({"number": range(20)})


class Counting(Task):
    load_rows = build = stages = collator = evaluate = None


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


def test_a_task_says_only_what_differs():
    task = Counting(TrainingConfig())
    assert task.identity(None, None, ROWS) == {"number of rows": 20}
    assert task.training_rows(None, None, ROWS) is task.evaluation_rows(None, None, ROWS) is ROWS
    assert not [*task.known_metrics(ROWS), *task.comparable_settings("loss", {}, {}), *task.card_notes({})]
    assert task.greater_is_better and task.metric == "loss"


def test_a_tracker_that_is_not_installed():
    check_tracker(None)
    with pytest.raises(ConfigError, match="tensorboards"):
        check_tracker("tensorboards")

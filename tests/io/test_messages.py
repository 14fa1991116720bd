"""The cause of an error, and the progress of long work."""

import errno
import logging
import warnings

import pytest

from hf_ngsan.io import messages
from hf_ngsan.io.messages import ProgressDisplay, chain, errno_of, is_out_of_memory, one_sentence, plain_warnings


def test_a_chain_of_errors_ends_where_it_rings():
    first, second = ValueError("one"), OSError(errno.ENOSPC, "two")
    first.__context__, second.__context__ = second, first
    assert list(chain(first)) == [first, second]
    assert errno_of(first) == errno.ENOSPC
    assert not is_out_of_memory(first)


def test_an_error_of_code_comes_with_its_type_and_a_warning_is_one_line():
    assert one_sentence(KeyError("boxes")) == "KeyError: 'boxes'"
    assert one_sentence(ValueError("No boxes.\nThey are missing.")) == "No boxes"
    with plain_warnings():
        assert warnings.formatwarning("two\nlines", FutureWarning, "file.py", 1) == "Warning: two lines\n"
    assert "file.py" in warnings.formatwarning("two\nlines", FutureWarning, "file.py", 1)


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(messages.time, "monotonic", lambda: now[0])
    return now


def test_without_an_estimate_the_pace_and_the_time_left_follow_from_what_is_done(clock, caplog):
    caplog.set_level(logging.INFO, "hf_ngsan")
    with ProgressDisplay("extracting", total=400, done=100) as display:
        clock[0] += 50
        display.update(200)
    output = ["extracting, 200 of 400 images, 2.0 images/s, 01:40 left"]
    assert [record.getMessage() for record in caplog.records] == output
    with ProgressDisplay("another process", total=400, shown=False) as display:
        clock[0] += 1000
        display.update(100, "loss 2.5, 1:00 left")
    assert [record.getMessage() for record in caplog.records] == output

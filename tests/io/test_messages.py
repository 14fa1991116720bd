"""What is behind an error."""

import errno

import pytest

from hf_ngsan.io.messages import chain, errno_of, is_out_of_memory


def test_a_chain_of_errors_ends_where_it_rings():
    first, second = ValueError("one"), OSError(errno.ENOSPC, "two")
    first.__context__, second.__context__ = second, first
    assert list(chain(first)) == [first, second]
    assert errno_of(first) == errno.ENOSPC
    assert not is_out_of_memory(first)


def test_the_cause_comes_before_the_context():
    with pytest.raises(ValueError) as raised:
        try:
            raise KeyError("context")
        except KeyError as error:
            raise ValueError("told") from MemoryError(error)
    assert [type(error) for error in chain(raised.value)] == [ValueError, MemoryError]
    assert is_out_of_memory(raised.value)

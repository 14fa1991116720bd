"""What is behind an error."""

import pytest

from hf_ngsan.io.messages import chain, is_out_of_memory


def test_the_cause_comes_before_the_context():
    with pytest.raises(ValueError) as raised:
        try:
            raise KeyError("context")
        except KeyError as error:
            raise ValueError("told") from MemoryError(error)
    assert [type(error) for error in chain(raised.value)] == [ValueError, MemoryError]
    assert is_out_of_memory(raised.value)

"""The frozen checkpoints with the installed transformers; `make drift` tests the other versions."""

import pytest

from hf_ngsan.registry import MODEL_TYPES
from tests.drift.__main__ import TOLERANCE, differences_as_remote_code, differences_with_the_package, frozen_outputs
from tests.drift.private_names import PRIVATE_NAMES, missing_names, used_names


def test_there_is_one_of_every_model_type():
    assert frozen_outputs().keys() == MODEL_TYPES.keys()  # python -m tests.drift --freeze adds a new one


@pytest.mark.slow
def test_private_names_of_other_libraries_are_listed_and_there():
    assert used_names() <= {name.rpartition(".")[2] for name in PRIVATE_NAMES}
    assert missing_names() == []


@pytest.mark.slow
def test_they_compute_what_they_did(tmp_path):
    actual = differences_with_the_package(tmp_path)
    assert max(actual.values()) <= TOLERANCE, actual


@pytest.mark.nightly
def test_they_compute_it_as_remote_code_too(tmp_path):
    differences_with_the_package(tmp_path)
    actual = differences_as_remote_code(tmp_path)
    assert max(actual.values()) <= TOLERANCE, actual

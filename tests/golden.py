"""Outputs of the authors' released implementations, in the folder HF_NGSAN_TEST_DATA."""

import os
from pathlib import Path

import pytest


def golden_folder(name: str) -> Path:
    """The folder of a set of outputs; the test is skipped without it."""
    folder = Path(os.environ.get("HF_NGSAN_TEST_DATA", ""), "golden", name)
    if "HF_NGSAN_TEST_DATA" not in os.environ or not folder.is_dir():
        pytest.skip(f"HF_NGSAN_TEST_DATA does not name a folder with golden/{name}")
    return folder

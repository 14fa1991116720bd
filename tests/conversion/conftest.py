"""The scripts of `conversion/` import each other as a command line does: from their folder."""

import sys
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "conversion"
sys.path.insert(0, str(SCRIPTS))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def scripts() -> Path:
    return SCRIPTS

"""Imports the scripts of `conversion/` from their folder, as the command line does."""

import sys
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "conversion"
sys.path.insert(0, str(SCRIPTS))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)

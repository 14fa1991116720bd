"""Every test of the models starts from the same random state."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)

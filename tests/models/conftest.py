"""Every test of the models starts with the same random state; of transformers' suite, applicable tests are run."""

import pytest
import torch

from tests.transformers_suite import VARIANTS, applies


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not applies(item)])
    items[:] = filter(applies, items)
    for item in items:
        if VARIANTS.search(item.name):
            item.add_marker(pytest.mark.slow)
        if item.name == "test_bc_cache_name_forward":  # which expects the warning
            item.add_marker(pytest.mark.filterwarnings("always::FutureWarning"))

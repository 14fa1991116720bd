"""The examples in docstrings give what they show."""

import doctest
from importlib import import_module

import pytest

from .test_layers import FILES, module_name

PACKAGES = ("metrics", "visualization")
MODULES = [
    module_name(file) for file, path in FILES.items() if file.split("/")[0] in PACKAGES and ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name):
    failed, attempted = doctest.testmod(import_module(name))
    assert attempted and not failed

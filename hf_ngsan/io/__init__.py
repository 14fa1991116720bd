"""The lowest layer, which every package but `models` may import; lazy packages, and modules of users."""

import ast
import os
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from .messages import type_and_reason

MAX_INTEGER = 2**32 - 1  # the largest seed that NumPy takes
MAX_CAPTION_LENGTH = 4_096
"""Tokens of a caption or a sentence, far above useful values: a larger number is a mistake that would cost memory."""
DEFAULT_CAPTION_LENGTH = 20
"""New tokens that `generate()` of transformers 5 writes where neither model nor caller says how many."""


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Makes `__getattr__`, `__dir__` and `__all__` of a package from the imports in its block `if TYPE_CHECKING:`.

    Type checkers follow these imports; Python reads them in the package's source and runs one when its name is used.
    """
    loader: Any = sys.modules[package].__spec__.loader  # type: ignore[union-attr]  # every package has both
    blocks = [node.body for node in ast.parse(loader.get_source(package)).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: "." * node.level + (node.module or "") for node in imports for alias in node.names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        value = getattr(import_module(home, package), name) if home.strip(".") else import_module(home + name, package)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes}), sorted(homes)


def import_user_module(name: str, asked_for_by: str) -> ModuleType:
    """Imports a module of a user's that an option or key asks for; those in the current folder are found last."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return import_module(name)
    except Exception as error:
        raise ValueError(f"{asked_for_by}: importing {name} failed ({type_and_reason(error)}).") from error

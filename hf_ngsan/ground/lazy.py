"""Packages whose names are imported when they are first used, so that importing the package costs nothing."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], submodules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Makes `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: the package's `__name__`.
        homes: module of the package to the names that it lends to the package.
        submodules: modules that are names of the package themselves.
    """
    home_of = {name: module for module, names in homes.items() for name in names}
    public = sorted([*home_of, *submodules])

    def get(name: str) -> Any:
        if name in home_of:
            value = getattr(import_module(f".{home_of[name]}", package), name)
        elif name in submodules:
            value = import_module(f".{name}", package)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public})

    return get, list_names, public

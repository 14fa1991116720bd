"""Lazy packages: a name is imported when it is first used, so that importing the package costs nothing.

```python
if TYPE_CHECKING:
    from .modeling_ngsan import NGSANModel

__getattr__, __dir__, __all__ = lazy_names(__name__)
```
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Makes `__getattr__`, `__dir__` and `__all__` of a package from the imports in its block `if TYPE_CHECKING:`.

    Type checkers follow these imports; Python reads them in the package's source and runs one when its name is used.

    Args:
        package: its `__name__`. `from . import module` makes a module of the package a name of it.
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

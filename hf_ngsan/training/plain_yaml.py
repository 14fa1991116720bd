"""YAML of plain values with a bounded size, aliases expanded.

```python
parse_yaml("{epochs: 3}")  # {"epochs": 3}
```

A training config may come from a stranger, and a few lines of aliases of aliases can expand to more values than
memory holds.
"""

from pathlib import Path
from typing import Any

import yaml

MAX_CHARACTERS = 2**18
"""Characters of a file; training configs have some thousands."""
MAX_VALUES = 10_000
MAX_NESTING = 50


class PlainYAMLError(ValueError):
    """Text that is not YAML of this kind; `line` is the line of the fault, if known."""

    def __init__(self, reason: str, mark: yaml.Mark | None = None) -> None:
        super().__init__(" ".join(reason.split()))
        self.line = mark and mark.line + 1


class PlainLoader(yaml.SafeLoader):
    """Reports the line of a value that Python refuses, such as a number of thousands of digits."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except PlainYAMLError:
            raise
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            raise PlainYAMLError(f"a value cannot be read: {error}", node.start_mark) from None


def read_yaml(path: Path) -> object:
    """Reads a YAML file.

    Raises:
        PlainYAMLError: see [`parse_yaml`].
        OSError: there is no such file.
    """
    with open(path, encoding="utf-8") as file:
        try:
            return parse_yaml(file.read(MAX_CHARACTERS + 1))
        except UnicodeDecodeError as error:
            raise PlainYAMLError(str(error)) from None


def parse_yaml(text: str) -> object:
    """Returns the value of YAML text.

    Raises:
        PlainYAMLError: it is not YAML, too large, or nested too deeply.
    """
    if len(text) > MAX_CHARACTERS:
        raise PlainYAMLError(f"it has more than {MAX_CHARACTERS:,} characters")
    try:
        loader = PlainLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        count_values(node, {}, MAX_NESTING)
        return loader.construct_document(node)
    except RecursionError:
        raise PlainYAMLError("it has lists or mappings within each other without end") from None
    except yaml.YAMLError as error:
        reason = getattr(error, "problem", None) or str(error)
        raise PlainYAMLError(reason, getattr(error, "problem_mark", None)) from None


def count_values(node: yaml.Node, known: dict[int, int], nesting: int) -> int:
    """Returns the number of values in a node, aliases expanded; raises an error for too many or too deep ones.

    `known` has the counts of earlier nodes by their ids, so that an alias takes no time.
    """
    if nesting == 0:
        raise PlainYAMLError("it has lists or mappings within each other without end", node.start_mark)
    if id(node) not in known:
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [child for pair in children for child in (pair if isinstance(pair, tuple) else (pair,))]
        known[id(node)] = 1 + sum(count_values(child, known, nesting - 1) for child in inner)
    if known[id(node)] > MAX_VALUES:
        raise PlainYAMLError(f"it has more than {MAX_VALUES:,} values with its aliases written out", node.start_mark)
    return known[id(node)]

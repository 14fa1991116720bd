"""YAML of plain values, which stays small when its aliases are written out."""

from pathlib import Path
from typing import Any

import yaml

LARGEST_FILE = 2**18
"""Characters; training configs have some thousands."""
MOST_VALUES = 10_000
DEEPEST_NESTING = 50


class PlainYAMLError(ValueError):
    """Text that is no such YAML; the message says why, and `line` where, if that is known."""

    def __init__(self, reason: str, mark: yaml.Mark | None = None) -> None:
        super().__init__(" ".join(reason.split()))
        self.line = mark and mark.line + 1


class PlainLoader(yaml.SafeLoader):
    """Reads values of which one that Python refuses, such as a number of thousands of digits, is told by its line."""

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
            return parse_yaml(file.read(LARGEST_FILE + 1))
        except UnicodeDecodeError as error:
            raise PlainYAMLError(str(error)) from None


def parse_yaml(text: str) -> object:
    """Returns the value that YAML text stands for.

    Raises:
        PlainYAMLError: it is not YAML, too large, or nested too deeply.
    """
    if len(text) > LARGEST_FILE:
        raise PlainYAMLError(f"it has more than {LARGEST_FILE:,} characters")
    try:
        loader = PlainLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        check_extent(node, {}, DEEPEST_NESTING)
        return loader.construct_document(node)
    except PlainYAMLError:
        raise
    except RecursionError:
        raise PlainYAMLError("it has lists or mappings within each other without end") from None
    except yaml.YAMLError as error:
        raise PlainYAMLError(
            getattr(error, "problem", None) or str(error), getattr(error, "problem_mark", None)
        ) from None


def check_extent(node: yaml.Node, values: dict[int, int], nesting: int) -> int:
    """Returns the number of values in a node with its aliases written out; raises for too many and too deep ones."""
    if nesting == 0:
        raise PlainYAMLError("it has lists or mappings within each other without end", node.start_mark)
    if id(node) not in values:
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [child for pair in children for child in (pair if isinstance(pair, tuple) else (pair,))]
        values[id(node)] = 1 + sum(check_extent(child, values, nesting - 1) for child in inner)
    if values[id(node)] > MOST_VALUES:
        raise PlainYAMLError(f"it has more than {MOST_VALUES:,} values with its aliases written out", node.start_mark)
    return values[id(node)]

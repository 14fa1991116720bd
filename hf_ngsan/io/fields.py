"""JSON files read into dataclasses; an error names the field that is missing, unknown or of another type.

```python
read_fields(Progress, {"epoch": "3"})  # FieldError: epoch
```
"""

import json
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Kind = TypeVar("Kind")
types_of = lru_cache(get_type_hints)
"""Returns the types of the fields of a class by name."""


class FieldError(ValueError):
    """A field that is missing, unknown or of another type; the message is its name, such as `progress.epoch`."""


def read_json_or_none(file: Path) -> Any:
    """Returns the value in a JSON file; None if the file is missing, unreadable or no JSON."""
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None


def read_fields(kind: type[Kind], value: object, name: str = "", complete: bool = True) -> Kind:
    """Returns a JSON object as a dataclass.

    Args:
        kind: a dataclass of JSON's types, lists and dictionaries of them, unions with None, and named tuples.
        value: a value from `json.loads`.
        name: name of the object, for the error.
        complete: whether fields with defaults are required too.

    Raises:
        FieldError: a field is missing, unknown, of another type or refused by the dataclass.
    """
    types, known = types_of(kind), {entry.name: entry for entry in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(value, dict):
        raise FieldError(name)
    prefix = f"{name}." if name else ""
    unknown = value.keys() - known.keys()
    if unknown:
        raise FieldError(f"{prefix}{min(unknown)}")
    for key, entry in known.items():
        has_default = entry.default is not MISSING or entry.default_factory is not MISSING
        if key not in value and (complete or not has_default):
            raise FieldError(f"{prefix}{key}")
    return kind(**{key: as_kind(types[key], part, f"{prefix}{key}") for key, part in value.items()})


def as_kind(kind: Any, value: Any, name: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if isinstance(kind, type) and is_dataclass(kind):
        return read_fields(kind, value, name)
    if origin is UnionType:
        return None if value is None and NoneType in inner else as_kind(inner[0], value, name)
    if origin is list and isinstance(value, list):
        return [as_kind(inner[0], part, name) for part in value]
    if origin is dict and isinstance(value, dict):
        return {key: as_kind(inner[1], part, name) for key, part in value.items()}
    if hasattr(kind, "_fields") and isinstance(value, list) and [*map(type, value)] == [*types_of(kind).values()]:
        return kind(*value)
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise FieldError(name)

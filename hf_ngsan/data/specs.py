"""Specs: a short string names a dataset in Python, in training configs and on the command line.

load_data("scenes:size=2000,seed=1", "train")
load_data("features:runs/features", "validation")
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import DataError
from .readers import Reader, find_reader

if TYPE_CHECKING:
    from datasets import Dataset

BATCH = 10_000
"""Rows whose captions are checked in one step."""
SPLIT_ALIASES = {"val": "validation"}


def load_data(spec: str, split: str) -> "Dataset":
    """Loads one split of the dataset that a spec names.

    [`describe_readers`] lists the specs. A spec is the name of a reader and, behind a colon, its arguments: a source,
    such as a folder, and `KEY=VALUE` with commas between. The longest text that exists as a file or folder is
    the source, so that its name may hold commas and equals signs.

    Args:
        spec: names the dataset.
        split: `train`, `validation` (or `val`), `test`, or any other that exists.

    Returns:
        `datasets.Dataset`, memory-mapped, whose rows follow the feature contract; features and boxes are read as
        float32 arrays, the other columns as Python objects.

    Raises:
        DataError: an unknown spec, key or split, or data that cannot be used.
    """
    reader = find_reader(spec)
    source, values = parse_spec(spec, reader)
    return reader.load(source, SPLIT_ALIASES.get(split, split), values)


def check_captions(rows: "Dataset", spec: str, split: str) -> None:
    """Raises a [`DataError`] for rows without captions, which training and evaluation need, or with one too long."""
    if "captions" in rows.column_names:
        import pyarrow.compute as pc

        from .contract import refuse_long_caption

        for batch in rows.select_columns("captions").with_format("arrow").iter(BATCH):
            texts = pc.list_flatten(batch["captions"])
            refuse_long_caption(pc.max(pc.utf8_length(texts)).as_py() or 0, f"{spec}, split {split}: a caption")
        return
    fix = "training and evaluation need them"
    reader = find_reader(spec)
    if "captions" in reader.keys:
        from .images.folder import how_to_caption
        from .images.sources import is_folder_of_photographs

        source, keys = parse_spec(spec, reader)
        if is_folder_of_photographs(source, keys.get("config")):
            how, example = how_to_caption(Path(source))
            fix = f"{how}, beginning with the lines {example[0]!r} and, for example, {example[1]!r}"
        else:
            fix = "name the columns that hold them with captions=COLUMN or captions=COLUMN+COLUMN"
    elif "caption" in rows.column_names:
        fix = "rename its column 'caption' to 'captions', whose values are lists of strings"
    raise DataError(f"{spec}, split {split}, has no captions; {fix}.")


def parse_spec(spec: str, reader: Reader) -> tuple[str, dict[str, Any]]:
    """Splits a spec into its source (empty where the reader takes none) and the values of its keys.

    Raises:
        DataError: no source, an unknown key, or a value of the wrong type.
    """
    text = spec.partition(":")[2]
    if not reader.source:
        return "", parse_keys(spec, [part.strip() for part in text.split(",") if part], reader.keys)
    parts = re.split(r",(?=\s*\w+\s*=)", text) if reader.keys else [text]
    sources = [os.path.expanduser(",".join(parts[:number])) for number in range(1, len(parts) + 1)]
    number = next((number for number in range(len(parts), 0, -1) if os.path.lexists(sources[number - 1])), 1)
    if not sources[number - 1]:
        raise DataError(f"The dataset {spec!r} names no {reader.source}; write {reader.usage}.")
    return sources[number - 1], parse_keys(spec, parts[number:], reader.keys)


def parse_keys(spec: str, parts: list[str], kinds: Mapping[str, type]) -> dict[str, Any]:
    """Reads values from texts `key=value`."""
    values = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise DataError(f"In the dataset {spec!r}, {part!r} is not KEY=VALUE; keys are {', '.join(kinds)}.")
        if key not in kinds:
            raise DataError(f"In the dataset {spec!r}, {key!r} is not a key; there are {', '.join(kinds)}.")
        if key in values:
            raise DataError(f"In the dataset {spec!r}, {key!r} is given twice; give it once.")
        values[key] = parse_value(spec, key, value, kinds[key])
    return values


def parse_value(spec: str, key: str, value: str, kind: type) -> int | bool | str:
    if kind is bool:
        if value.lower() not in ("true", "false"):
            raise DataError(f"In the dataset {spec!r}, {key} is {value!r}; it must be true or false.")
        return value.lower() == "true"
    if not value:
        raise DataError(f"In the dataset {spec!r}, {key} has no value; write {key}=VALUE.")
    try:
        return kind(value)
    except ValueError:
        raise DataError(f"In the dataset {spec!r}, {key} is {value!r:.60}; it must be a whole number.") from None

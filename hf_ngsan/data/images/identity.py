"""Rows of the same image, found by a key or by the bytes of the image.

```python
first_rows(["a", "b", "a"], np.array([True, True, True]))  # [0, 1, 0]
```
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from ...io.files import sha256


def first_rows(keys: Sequence | np.ndarray, is_used: np.ndarray) -> np.ndarray:
    """Finds the first row of each image.

    Args:
        keys: n values, equal for rows of the same image.
        is_used: `(n,)`, whether a row is used.

    Returns:
        `(n,)`, the first used row with the same key; -1 at unused rows.
    """
    first: dict[Any, int] = {}
    places = np.full(len(is_used), -1)
    for row in np.flatnonzero(is_used).tolist():
        places[row] = first.setdefault(keys[row], row)
    return places


def whole_numbers(column: pa.ChunkedArray) -> np.ndarray | None:
    """Returns the values as int64 if all are whole numbers, possibly written in digits; else None."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        if not pc.all(pc.match_substring_regex(column, r"^[0-9]{1,18}$"), skip_nulls=False).as_py():
            return None
    elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    try:
        return None if column.null_count else np.asarray(column.cast(pa.int64()))
    except pa.ArrowInvalid:  # fractions, or numbers beyond 64 bits
        return None


def image_parts(images: Dataset, batch_size: int = 1024) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yields the bytes and paths of undecoded images, `batch_size` rows at a time, without reading the bytes."""
    for table in images.with_format("arrow").iter(batch_size=batch_size):
        for chunk in table.column("image").chunks:
            chunk.validate(full=True)
            valid = chunk.is_valid()
            yield tuple(pc.if_else(valid, chunk.field(name), None) for name in ("bytes", "path"))


def content_keys(images: Dataset) -> list[tuple]:
    """Returns keys that are equal for images with the same bytes or, if only paths are stored, the same path.

    Bytes are read only if another image has the same length.
    """
    lengths = np.concatenate(
        [np.asarray(pc.fill_null(pc.binary_length(data), -1), dtype=np.int64) for data, _ in image_parts(images)]
    )
    _, kinds, counts = np.unique(lengths, return_inverse=True, return_counts=True)
    is_shared = counts[kinds] > 1
    keys: list[tuple] = []
    for data, paths in image_parts(images, batch_size=64):
        for content, path in zip(data, paths, strict=True):
            row = len(keys)
            if not content.is_valid:
                keys.append((-1, path.as_py()))
            else:
                digest = hashlib.sha256(content.as_buffer()).digest() if is_shared[row] else row
                keys.append((int(lengths[row]), digest))
    return keys


def other_images(images: Dataset, owners: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields pairs of a row and the first row of its key, if their images differ.

    Args:
        images: undecoded images.
        owners: `(n,)`, the first row of the key of each row, see [`first_rows`].
    """
    others = np.flatnonzero((owners >= 0) & (owners != np.arange(len(owners))))
    rows = np.union1d(others, owners[others])
    digests = dict(zip(rows.tolist(), image_digests(images.select(rows)), strict=True))
    return ((row, owners[row]) for row in others.tolist() if digests[row] != digests[owners[row]])


def image_digests(images: Dataset) -> Iterator[bytes]:
    """Yields a checksum of the bytes of each image, or of its file."""
    for data, paths in image_parts(images, batch_size=64):
        for content, path in zip(data, paths, strict=True):
            if content.is_valid:
                yield hashlib.sha256(content.as_buffer()).digest()
            elif Path(path.as_py()).is_file():
                yield bytes.fromhex(sha256(Path(path.as_py())))
            else:  # in an archive; or missing, which is an error when the image is read
                yield path.as_py().encode()

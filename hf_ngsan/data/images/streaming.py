"""Streamed datasets of images, read from beginning to end; captions and a window of images are kept in memory."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, Image, IterableDataset

from ..errors import DataError, MissingSplitError, reason_of
from ..row_formats import NAMED_IMAGES, with_named_images
from ..splits import find_split
from .columns import Columns, find_columns
from .own_files import OwnFiles
from .rows import TYPES, all_but_images
from .sources import open_source

PLACE = "stream:"
"""Prefix of the path of an image in a stream, before its number."""
BATCH = 16


def stream_images(
    source: str, split: str, image: str | None, captions: str | None, config: str | None, shuffle_buffer: int
) -> Dataset:
    """Loads one split of a dataset of images whose images are streamed; see [`~loading.load_images`].

    A first pass reads everything but the images into memory. A row is an image with all of its captions.

    Args:
        source, split, image, captions, config: as for `load_images`.
        shuffle_buffer: rows of a window that training shuffles, and images that are held in memory.

    Raises:
        DataError: as for `load_images`, or a buffer without rows.
    """
    if shuffle_buffer < 1:
        raise DataError(f"In images:{source}, shuffle_buffer is {shuffle_buffer}; it must be at least 1.")
    name = f"{source}, split {split}"
    parts = open_stream(source, config)
    part = find_split(split, parts)
    if part is None:
        raise MissingSplitError(f"{source} has no split {split!r}; there are {', '.join(parts)}.")
    columns = replace(find_columns(parts[part], source, image, captions), row_id=None)
    stream = ImageStream(source, config, part, columns.image, shuffle_buffer)
    try:
        table = read_all_but_images(parts[part], columns)
    except DataError:
        raise
    except Exception as error:  # depends on the damaged format
        raise DataError(f"{name}: the rows cannot be read ({reason_of(error)}); get the files again.") from error
    if not len(table):
        raise DataError(f"{name}: the dataset has no rows.")
    file_names = None if columns.file_name is None else table[columns.file_name].to_pylist()
    found, chosen = all_but_images(table, columns, np.arange(len(table)), file_names, name)
    types = {key: TYPES[key] for key in found} | {"image": Image()}
    found["image"] = [{"bytes": None, "path": f"{PLACE}{number}"} for number in range(len(table))]
    rows = Dataset.from_dict(found, features=Features(types))
    return with_named_images(rows.select(chosen), name, stream)


def open_stream(source: str, config: str | None) -> dict[str, IterableDataset]:
    """Opens all splits of a dataset as streams, by name."""
    # Streams may not know their columns before they are read; datasets (tested with 5.2) has no public way to ask.
    return {name: part._resolve_features() for name, part in open_source(source, config, streaming=True).items()}


def read_all_but_images(stream: IterableDataset, columns: Columns) -> pa.Table:
    """Returns the other columns that are needed, with the number of rows in `__row__`."""
    names = columns.besides_images
    found: dict[str, list] = {name: [] for name in names}
    number = 0
    for row in stream.select_columns(names or [columns.image]).decode(False):
        number += 1
        for name in names:
            found[name].append(row[name])
    schema = Features({name: stream.features[name] for name in names}).arrow_schema
    arrays = {name: pa.array(values, schema.field(name).type) for name, values in found.items()}
    return pa.table({**arrays, "__row__": np.arange(number)})


class ImageStream:
    """The images of a stream by the numbers of their rows.

    Images may be read in any order. A number that is further behind the largest one so far than the buffer is long
    makes the stream start again.

    Args:
        source, config, split: the stream, see [`open_stream`].
        column: column of the images.
        buffer: number of images that are kept behind the largest number so far.
    """

    def __init__(self, source: str, config: str | None, split: str, column: str, buffer: int) -> None:
        self.source, self.config, self.split, self.column, self.buffer = source, config, split, column, buffer
        self.own = OwnFiles(source)
        self.close()

    def close(self) -> None:
        self.items: Iterator[Any] | None = None
        self.held: dict[int, Any] = {}
        self.first, self.next, self.largest = 0, 0, -1
        self.process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        names = ("source", "config", "split", "column", "buffer")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def images_at(self, places: Sequence[Mapping]) -> list[Mapping]:
        """Returns the images, as stored, of rows with their numbers in the column `image`.

        Raises:
            DataError: the stream ends before one of them.
        """
        numbers = [int(place["path"].removeprefix(PLACE)) for place in places]
        lowest, highest = min(numbers), max(numbers)
        is_far = lowest > self.next + self.buffer
        if self.items is None or self.process != os.getpid() or lowest < self.first or is_far:
            self.begin(max(0, lowest - self.buffer))
        while self.next <= highest:
            try:
                self.held[self.next] = next(self.items)  # type: ignore[arg-type]
            except StopIteration:
                raise DataError(
                    f"{self.source} has {self.next} images now; it had more when it was opened. Start again."
                ) from None
            self.next += 1
        stored = [self.held[number] for number in numbers]
        self.largest = max(self.largest, highest)
        while self.first <= self.largest - self.buffer:
            self.held.pop(self.first, None)
            self.first += 1
        return [self.own_image(value) for value in stored]

    def own_image(self, value: Any) -> Mapping:
        """Returns an image as stored: its bytes, or the path of one of the dataset's own files."""
        if not isinstance(value, Mapping):
            value = {"bytes": None, "path": value} if isinstance(value, str) else {"bytes": value, "path": None}
        if value["bytes"] is not None or value["path"] is None:
            return value
        return {"bytes": None, "path": self.own.find(value["path"], f"{self.source}, split {self.split}")}

    def begin(self, number: int) -> None:
        """Reads the stream again, from a row on."""
        self.close()
        stream = open_stream(self.source, self.config)[self.split].select_columns([self.column])
        feature = (stream.features or {})[self.column]
        if isinstance(feature, Image):
            stream = stream.cast_column(self.column, Image(decode=False))
        # Iteration by rows would split the files among loading processes.
        values = (value for batch in stream.iter(batch_size=BATCH) for value in batch[self.column])
        self.items = islice(values, number, None)
        self.first = self.next = number


def shuffle_buffer_of(rows: Any) -> int | None:
    """Returns the size of the windows in which streamed rows are shuffled; None for other rows."""
    if not isinstance(rows, Dataset) or rows.format["type"] != NAMED_IMAGES:
        return None
    stream = rows.format["format_kwargs"]["stream"]
    return None if stream is None else stream.buffer

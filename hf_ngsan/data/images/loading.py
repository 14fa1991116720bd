"""The readers of `images:SOURCE` (images with captions from any dataset that the datasets library reads) and of
`videos:FOLDER` (video files with captions).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, Image, IterableDataset, Value, Video

from ..errors import DataError, naming_damage
from . import VIDEO_SUFFIXES, OwnFiles, sorted_files
from .files import NAMED_IMAGES, with_named_images
from .rows import TYPES, Columns, all_but_images, find_columns, image_rows
from .sources import choose_split, is_folder_of_photographs, name_of_split, open_source, open_split, read_folder

PLACE = "stream:"  # prefix of the path of an image in a stream, followed by its number


def load_image_dataset(
    source: str,
    split: str,
    *,
    image: str | None = None,
    captions: str | None = None,
    config: str | None = None,
    streaming: bool = False,
    shuffle_buffer: int = 1000,
    links: bool = False,
) -> Dataset:
    """Loads one split of a dataset of images, as `image_id`, `image` (decoded when it is read) and, if known,
    `captions` and `file_name`.

    Captions are in a column of lists, in several columns (`captions`, joined by `+`), or in a column of strings. Rows
    with one string each are merged if they show the same image: the same id, else the same file name, else the same
    bytes or path. Images without captions are left out, unless no image has captions. The id of an image is its value
    in the id column, else the number at the end of its file name if these numbers are unique, else its row number.

    With `streaming`, the images are read sequentially in each epoch, and nothing is prepared on disk; all other columns
    are first read into memory. `shuffle_buffer` rows of a stream are shuffled together.

    A link out of the dataset's folder is a DataError; `links` allows links in a folder of photographs.
    """
    name = f"{source}, split {split}"
    if streaming and not is_folder_of_photographs(source, config):  # such a folder is read in place anyway
        return stream_images(source, split, name, image, captions, config, shuffle_buffer)
    dataset, numbers = open_split(source, split, config, links)
    return image_rows(dataset, find_columns(dataset, source, image, captions), numbers, name, source, links)


def stream_images(
    source: str, split: str, name: str, image: str | None, captions: str | None, config: str | None, buffer: int
) -> Dataset:
    parts = open_stream(source, config)
    part = name_of_split(split, parts, source)
    columns = replace(find_columns(parts[part], source, image, captions), row_id=None)
    stream = ImageStream(source, config, part, columns.image, buffer)
    with naming_damage(name):
        table = read_all_but_images(parts[part], columns)
    file_names = None if columns.file_name is None else table[columns.file_name].to_pylist()
    content, chosen = all_but_images(table, columns, np.arange(len(table)), file_names, name)
    types = {key: TYPES[key] for key in content} | {"image": Image()}
    content["image"] = [{"bytes": None, "path": f"{PLACE}{number}"} for number in range(len(table))]
    rows = Dataset.from_dict(content, features=Features(types))
    return with_named_images(rows.select(chosen), name, stream)


def open_stream(source: str, config: str | None) -> dict[str, IterableDataset]:
    # Streams may not know their columns before they are read; datasets (tested with 5.2) has no public way to get them.
    return {name: part._resolve_features() for name, part in open_source(source, config, streaming=True).items()}


def read_all_but_images(stream: IterableDataset, columns: Columns) -> pa.Table:
    """Returns the other columns that are needed, with row numbers in `__row__`."""
    names = columns.besides_images
    stored = enumerate(stream.select_columns(names or [columns.image]).decode(False))
    rows = [{"__row__": number, **{name: row[name] for name in names}} for number, row in stored]
    types = Features({"__row__": Value("int64"), **{name: stream.features[name] for name in names}})
    return pa.Table.from_pylist(rows, types.arrow_schema)


class ImageStream:
    """The images of a stream by row number. If a requested row is no longer in the buffer, the stream starts again from
    the beginning."""

    def __init__(self, source: str, config: str | None, split: str, column: str, buffer: int) -> None:
        self.source, self.config, self.split, self.column, self.buffer = source, config, split, column, buffer
        self.own_files = OwnFiles(source)
        self.close()

    def close(self) -> None:
        self.items: Iterator[Any] | None = None
        self.held: dict[int, Any] = {}
        self.first, self.next, self.largest, self.process = 0, 0, -1, os.getpid()

    def __reduce__(self) -> tuple:
        return ImageStream, (self.source, self.config, self.split, self.column, self.buffer)

    def images_at(self, places: Sequence[Mapping]) -> list[Mapping]:
        numbers = [int(place["path"].removeprefix(PLACE)) for place in places]
        lowest, highest = min(numbers), max(numbers)
        is_far = lowest > self.next + self.buffer
        if self.items is None or self.process != os.getpid() or lowest < self.first or is_far:
            self.begin(max(0, lowest - self.buffer))
        while self.next <= highest:
            try:
                self.held[self.next] = next(self.items)  # type: ignore[arg-type]
            except StopIteration:
                raise DataError(f"{self.source} has {self.next} images, fewer than when it was opened.") from None
            self.next += 1
        stored = [self.held[number] for number in numbers]
        self.largest = max(self.largest, highest)
        while self.first <= self.largest - self.buffer:
            self.held.pop(self.first, None)
            self.first += 1
        where = f"{self.source}, split {self.split}"
        is_file, find = [bool(image) and image["bytes"] is None for image in stored], self.own_files.find
        images = zip(stored, is_file, strict=True)
        return [{**image, "path": find(image["path"], where)} if is_path else image for image, is_path in images]

    def begin(self, number: int) -> None:
        self.close()
        stream = open_stream(self.source, self.config)[self.split].select_columns([self.column])
        stream = stream.cast_column(self.column, Image(decode=False))
        # Iterating over rows would split the files among loader processes.
        values = (value for batch in stream.iter(batch_size=16) for value in batch[self.column])
        self.items = islice(values, number, None)
        self.first = self.next = number


def load_videos(source: str, split: str, *, captions: str | None = None, links: bool = False) -> Dataset:
    """Loads one split of a folder of videos, which [`read_folder`] reads like photographs. The column `video` has the
    type `Video(decode=False)`: the path of the file. Processors choose the frames. For `links`, see
    [`load_image_dataset`]."""
    sorted_files(Path(source), VIDEO_SUFFIXES, links)  # raises an error if there are none
    part, numbers = choose_split(read_folder(Path(source), VIDEO_SUFFIXES, links), split, source)
    columns = find_columns(part, source, None, captions)
    rows = image_rows(part, columns, numbers, f"{source}, split {split}", source, links)
    rows = rows.with_format(None).cast_column("image", Image(decode=False)).rename_column("image", "video")
    return rows.cast_column("video", Video(decode=False))


def reads_files(rows: Any) -> bool:
    """Returns whether rows come from `images:` or `videos:` without streaming; they are decoded when they are read."""
    if not isinstance(rows, Dataset) or shuffle_buffer_of(rows) is not None:
        return False
    return rows.format["type"] == NAMED_IMAGES or "video" in rows.column_names


def shuffle_buffer_of(rows: Any) -> int | None:
    """Returns the size of the shuffle windows of streamed rows; None for other rows."""
    if not isinstance(rows, Dataset) or rows.format["type"] != NAMED_IMAGES:
        return None
    stream = rows.format["format_kwargs"]["stream"]
    return None if stream is None else stream.buffer

"""Records of feature files, one an image or video, and the sources that yield them.

A format is a [`Source`]; most know the names of all images when opened ([`ListedSource`], [`FileSource`]), and read a
record at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from ...ground.coco_files import number_of
from ..errors import DataError, reason_of


@dataclass(frozen=True)
class FeatureRecord:
    """Features of one image or video, as the file has them.

    Attributes:
        features: `(N, D)`, floating point numbers.
        boxes: `(N, 4)` in the convention of the file; None without.
        size: width and height of the image in pixels, where the file knows them.
        grid: rows and columns, whose product is N, where the features are those of a grid's cells, row by row.
    """

    features: np.ndarray
    boxes: np.ndarray | None = None
    size: tuple[int, int] | None = None
    grid: tuple[int, int] | None = None


@dataclass(frozen=True)
class ImageRecord:
    """An image, as the file has it.

    Attributes:
        content: the bytes of an image file.
        file_name: what to call it.
        captions: None where the file has none at all.
        size: width and height in pixels.
        split: None where the file does not say.
    """

    content: bytes
    file_name: str
    captions: tuple[str, ...] | None
    size: tuple[int, int]
    split: str | None = None


def image_size(content: bytes, where: str) -> tuple[int, int]:
    """Returns the width and height of an image, upright; a DataError says if it cannot be decoded."""
    from datasets import Image

    from ..images.decoding import decode_image

    try:
        image = decode_image({"bytes": content, "path": None}, Image())
        if image is None:
            raise ValueError("there is none")
        image.load()
        return image.size
    except Exception as error:  # Pillow says in many ways that a file is damaged
        raise DataError(f"{where}: the image cannot be read ({reason_of(error)}); leave it out.") from error


class Entry(NamedTuple):
    """A record that has not been read yet.

    Attributes:
        name: of the image as the file writes it; None where it is known only after reading.
        where: what to call the record in messages.
        end: where the next record begins, for [`Source.entries`].
        read: reads it; returns its name too. A [`~hf_ngsan.data.DataError`] says what is wrong with it.
    """

    name: str | None
    where: str
    end: int
    read: Callable[[], tuple[str, "FeatureRecord | ImageRecord"]]


class Source:
    """An opened file or folder of features.

    Attributes:
        path: of the file or folder.
        unit: in which `total` counts.
        total: the last entry's `end`.
        is_numbered: whether the names of images are numbers; otherwise places in the source become image ids.
    """

    path: Path
    unit = "images"
    total: int
    is_numbered: bool

    def entries(self, start: int = 0) -> Iterator[Entry]:
        """Yields the entries from a place on, 0 or the `end` of an entry, always in the same order."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes what is open."""


class ListedSource(Source):
    """A source that knows the names of all its records when it is opened.

    Args:
        path: of the file or folder.
        names: of the records, each with what [`read_record`] takes.
    """

    def __init__(self, path: Path, names: Sequence[tuple[str, str]]) -> None:
        self.path, self.names, self.total = path, names, len(names)

    @cached_property
    def is_numbered(self) -> bool:  # type: ignore[override]
        return all(number_of(name) is not None for name, _ in self.names)

    def entries(self, start: int = 0) -> Iterator[Entry]:
        for place, (name, key) in enumerate(self.names[start:], start):
            yield Entry(name, self.where(key), place + 1, partial(self.read_named, name, key))

    def read_named(self, name: str, key: str) -> tuple[str, FeatureRecord | ImageRecord]:
        return name, self.read_record(key)

    def where(self, key: str) -> str:
        """Returns what to call a record in messages."""
        return f"{self.path / key if self.path.is_dir() else self.path}"

    def read_record(self, key: str) -> FeatureRecord | ImageRecord:
        """Reads a record; a [`~hf_ngsan.data.DataError`] says what is wrong with it."""
        raise NotImplementedError


class FileSource(ListedSource):
    """A folder, and those within, with a file for each image, which is called by its stem; or one such file.

    Args:
        path: of the folder or file.
    """

    suffix: ClassVar[str]

    def __init__(self, path: Path) -> None:
        super().__init__(path, [((path / key).stem, key) for key in files_in(path, self.suffix)])


def files_in(path: Path, *suffixes: str) -> list[str]:
    """Returns files of some suffixes in a folder and those within, relative to it, by name; or the one file alone."""
    if path.is_file():
        return [""]
    found = (file for file in path.rglob("*") if file.suffix.lower() in suffixes and not file.name.startswith("."))
    return sorted(file.relative_to(path).as_posix() for file in found if file.is_file())

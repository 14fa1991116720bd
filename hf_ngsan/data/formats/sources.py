"""Sources: opened files or folders of features or images, with a record for each image or video.

A format is a [`Source`]; most know the names of all images when opened ([`ListedSource`], [`FileSource`]):

```python
for entry in source.entries():
    name, record = entry.read()  # "391895", FeatureRecord(features=..., boxes=...)
```
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from ..coco_files import number_of
from ..errors import naming_damage
from ..image_files import visible_files


@dataclass(frozen=True)
class FeatureRecord:
    """Features of one image or video, as stored in the file.

    Attributes:
        features: `(N, D)` numbers.
        boxes: `(N, 4)` in the convention of the file; None without.
        size: width and height of the image in pixels, if the file has them.
        grid: rows and columns of a grid of N cells, row by row; None for regions.
    """

    features: np.ndarray
    boxes: np.ndarray | None = None
    size: tuple[int, int] | None = None
    grid: tuple[int, int] | None = None


@dataclass(frozen=True)
class ImageRecord:
    """An image, as stored in the file.

    Attributes:
        content: the bytes of an image file.
        file_name: its name.
        captions: captions; empty without.
        size: width and height in pixels.
        split: split; None if the file has none.
    """

    content: bytes
    file_name: str
    captions: tuple[str, ...]
    size: tuple[int, int]
    split: str | None = None


class Entry(NamedTuple):
    """A record that has not been read yet.

    Attributes:
        name: name of the image in the file; None if it is known only after reading.
        where: name of the record in messages.
        end: place of the next record, for [`Source.entries`].
        load: returns name and record.
    """

    name: str | None
    where: str
    end: int
    load: Callable[[], tuple[str, FeatureRecord | ImageRecord]]

    def read(self) -> tuple[str, FeatureRecord | ImageRecord]:
        """Returns name and record; raises a [`~hf_ngsan.data.DataError`] for a damaged one."""
        with naming_damage(self.where):
            return self.load()


class Source:
    """An opened file or folder of features.

    Attributes:
        path: path of the file or folder.
        unit: unit of `total`.
        total: `end` of the last entry.
        is_numbered: whether the names of images are numbers; otherwise places in the source become image ids.
    """

    path: Path
    unit = "images"
    total: int
    is_numbered: bool

    @property
    def files(self) -> list[Path]:
        """Files or folders whose sizes and times tell whether the records are still the same."""
        return [self.path]

    def entries(self, start: int = 0) -> Iterator[Entry]:
        """Yields the entries from a place on, 0 or the `end` of an entry, always in the same order."""
        raise NotImplementedError

    def has_captions(self) -> bool:
        """Returns whether any record has captions."""
        return False

    def has_split(self) -> bool:
        """Returns whether any record has a split."""
        return False

    def close(self) -> None:
        """Closes open files."""


class ListedSource(Source):
    """A source that knows the names of all its records when it is opened.

    Args:
        path: path of the file or folder.
        names: name of each record, and the key that [`read_record`] takes.
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
        """Returns the name of a record in messages."""
        return f"{self.path / key if self.path.is_dir() else self.path}"

    def read_record(self, key: str) -> FeatureRecord | ImageRecord:
        """Reads a record; raises an exception for a damaged one."""
        raise NotImplementedError


class FileSource(ListedSource):
    """A folder, searched recursively, with a file for each image, named by its stem; or one such file.

    Args:
        path: path of the folder or file.
    """

    suffix: ClassVar[str]

    def __init__(self, path: Path) -> None:
        super().__init__(path, [((path / key).stem, key) for key in files_in(path, self.suffix)])


def files_in(path: Path, *suffixes: str) -> list[str]:
    """Returns the sorted files of some suffixes in a folder, as [`visible_files`]; "" for a single file."""
    if path.is_file():
        return [""]
    return sorted(name for name in visible_files(path) if name.lower().endswith(suffixes) and (path / name).is_file())

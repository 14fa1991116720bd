"""Sources: opened files or folders of features or images, with a record for each image or video; those of images.

A format is a [`Source`]; most know the names of all images when opened ([`ListedSource`], [`FileSource`]):

```python
for entry in source.entries():
    name, record = entry.read()  # "391895", FeatureRecord(features=..., boxes=...)
```
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import ClassVar, NamedTuple

import datasets
import numpy as np

from ..coco_files import number_of
from ..errors import DataError, naming_damage
from ..images import visible_files
from ..images.files import decode_image
from ..images.loading import load_images
from ..images.sources import column_of_splits, open_source
from ..images.tar_files import TAR_SUFFIXES, TarFile


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


class TarSource(ListedSource):
    """The samples of a tar file, or of all tar files in a folder.

    An image is named by the last part of its key. Where two images of the source would have one name, or one number,
    all are named by their whole keys, and where these are not unique either, by file and key.

    Args:
        path: path of the file or folder.

    Raises:
        DataError: a file cannot be read, see [`~hf_ngsan.data.images.tar_files.TarFile`].
    """

    def __init__(self, path: Path) -> None:
        folder = path if path.is_dir() else path.parent
        self.tars = [TarFile(path / name) for name in files_in(path, *TAR_SUFFIXES)]
        self.places = [(tar, key) for tar in self.tars for key in tar.samples]
        candidates = (
            [PurePosixPath(key).name for _, key in self.places],
            [key for _, key in self.places],
            [(tar.path.relative_to(folder) / key).as_posix() for tar, key in self.places],
        )
        unique = (names for names in candidates if len({number_of(name) or name for name in names}) == len(names))
        super().__init__(path, [(name, str(place)) for place, name in enumerate(next(unique, candidates[-1]))])

    @property
    def files(self) -> list[Path]:
        return [tar.path for tar in self.tars]

    def has_captions(self) -> bool:
        for tar, key in self.places:
            try:
                if tar.captions_of(key):
                    return True
            except DataError:  # of a sample that is refused when it is read
                continue
        return False

    def where(self, key: str) -> str:
        tar, sample = self.places[int(key)]
        return f"{tar.name}, {sample}"

    def read_record(self, key: str) -> ImageRecord:
        tar, sample = self.places[int(key)]
        content, name = tar.image_of(sample)
        return ImageRecord(content, PurePosixPath(name).name, tar.captions_of(sample), image_size(content))


class ParquetSource(ListedSource):
    """A Parquet file with images and captions in any columns that `images:SOURCE` recognises.

    Args:
        path: of the file.

    Raises:
        DataError: it cannot be read, or has no images.
    """

    def __init__(self, path: Path) -> None:
        self.parts = []
        parts = open_source(str(path), None)
        column = column_of_splits(parts)
        for split in dict.fromkeys(column or parts):
            rows = load_images(str(path), split).with_format(None)
            rows = rows.cast_column("image", datasets.Image(decode=False))
            self.parts.append((None if column is None and split == "train" else split, rows))
        keys = [f"{part}/{row}" for part, (_, rows) in enumerate(self.parts) for row in range(len(rows))]
        ids = (str(image_id) for _, rows in self.parts for image_id in rows["image_id"])
        super().__init__(path, list(zip(ids, keys, strict=True)))

    def has_captions(self) -> bool:
        return any("captions" in rows.column_names for _, rows in self.parts)

    def has_split(self) -> bool:
        return any(split is not None for split, _ in self.parts)

    def where(self, key: str) -> str:
        return f"{self.path}, row {key.partition('/')[2]}"

    def read_record(self, key: str) -> ImageRecord:
        part, number = map(int, key.split("/"))
        split, rows = self.parts[part]
        row = rows[number]
        content, path = row["image"]["bytes"], row["image"]["path"]
        if content is None:
            raise DataError(f"{self.where(key)} has the path of an image, {path}, and not the image itself.")
        name = Path(row.get("file_name") or path or "").name
        return ImageRecord(content, name, tuple(row.get("captions", ())), image_size(content), split)


def image_size(content: bytes) -> tuple[int, int]:
    """Returns the width and height of an image, upright; raises an exception if it cannot be decoded."""
    return decode_image({"bytes": content, "path": None}, datasets.Image()).size  # type: ignore[union-attr]

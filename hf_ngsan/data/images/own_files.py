"""The files of a dataset: only these are opened, whatever paths its rows name.

```python
OwnFiles("photos").find("garden/cats.jpg", "row 3")  # "/home/me/photos/garden/cats.jpg"
OwnFiles("photos").find("http://example.org/a.jpg", "row 4")  # DataError
```
"""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from datasets import Dataset
from huggingface_hub import constants

from ..errors import DataError

ZIP = "zip://"
HUB = "hf://datasets/"


class OwnFiles:
    """The files of a dataset.

    Args:
        source: a folder, a file, whose folder counts, or a name on the Hub, whose files are there or in the caches.
    """

    def __init__(self, source: str) -> None:
        self.hub = ""
        if os.path.exists(source):
            folder = os.path.abspath(source if os.path.isdir(source) else os.path.dirname(source))
            # files in the Hub's cache are links to the folder "blobs"
            snapshots = [place for place in Path(os.path.realpath(folder)).parents if place.name == "snapshots"]
            self.folders = [folder, *(str(place.parent / "blobs") for place in snapshots)]
        else:
            self.hub = f"{HUB}{source}"
            self.folders = [constants.HF_HUB_CACHE, str(datasets.config.HF_DATASETS_CACHE)]
        self.real_folders = [os.path.realpath(folder) for folder in self.folders]
        self.real_folder_of = cache(os.path.realpath)

    def find(self, path: str, where: str) -> str:
        """Returns where a file lies that the dataset names.

        Args:
            path: absolute, or relative to the dataset's folder; or `zip://MEMBER::ARCHIVE` with such a path of an
                archive.
            where: place of the name, for errors.

        Raises:
            DataError: a URL, or a file outside of the dataset.
        """
        if path.startswith(ZIP):
            member, _, archive = path.removeprefix(ZIP).partition("::")
            if archive and "::" not in archive and "://" not in member:
                return f"{ZIP}{member}::{self.find(archive, where)}"
        elif (
            self.hub and path.startswith((f"{self.hub}@", f"{self.hub}/")) and not re.search(r"::|(^|/)\.\.(/|$)", path)
        ):
            return path
        if "://" in path:
            raise DataError(f"{where}: the image is a URL, {path}; download the images first.")
        file = os.path.normpath(os.path.join(self.folders[0], path))
        if not self.holds(file):
            raise DataError(
                f"{where}: the image {path} lies outside of the dataset's folder, {self.folders[0]}, or is a link that"
                " leads out of it; copy the files into it, and name them by relative paths."
            )
        return file

    def holds(self, file: str) -> bool:
        """Returns whether a file lies in the dataset, also if links are followed."""
        folder, name = os.path.split(file)
        real = os.path.realpath(file) if os.path.islink(file) else os.path.join(self.real_folder_of(folder), name)
        return any(is_within(file, place) for place in self.folders + self.real_folders) and any(
            is_within(real, place) for place in self.real_folders
        )


def is_within(file: str, folder: str) -> bool:
    return file.startswith(os.path.join(folder, ""))


def with_own_files(dataset: Dataset, column: str, source: str, name: str) -> Dataset:
    """Returns a dataset whose images without bytes have absolute paths of files of the dataset.

    Args:
        dataset: its column `column` holds images, undecoded or not.
        column: the column.
        source: of the dataset, see [`OwnFiles`].
        name: name of the dataset in errors.

    Raises:
        DataError: a URL, or a file outside of the dataset.
    """
    own, parts, is_changed, first = OwnFiles(source), [], False, 0
    table = dataset.with_format("arrow")[:]
    for chunk in table.column(column).chunks:
        chunk.validate(full=True)
        without_bytes = np.flatnonzero(np.asarray(chunk.field("bytes").is_null()) & np.asarray(chunk.is_valid()))
        if len(without_bytes):
            paths: list[Any] = chunk.field("path").to_pylist()
            for row in without_bytes.tolist():
                if (stored := paths[row]) is not None:
                    paths[row] = own.find(stored, f"{name}, row {first + row}")
                    is_changed |= paths[row] != stored
            fields = [
                pa.array(paths, field.type) if field.name == "path" else chunk.field(field.name) for field in chunk.type
            ]
            chunk = pa.StructArray.from_arrays(fields, fields=list(chunk.type), mask=chunk.is_null())
        first += len(chunk)
        parts.append(chunk)
    if not is_changed:
        return dataset
    table = table.set_column(table.column_names.index(column), column, pa.chunked_array(parts))
    return Dataset(table, info=datasets.DatasetInfo(features=dataset.features), split=dataset.split)

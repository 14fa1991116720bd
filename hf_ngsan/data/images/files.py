"""The files of a dataset and their images: only its own files are opened, whatever paths its rows name."""

import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import PIL.Image
import PIL.ImageOps
import pyarrow as pa
from datasets import Dataset, Features, Image
from datasets.formatting import PythonFormatter, _register_formatter
from datasets.utils.file_utils import xopen
from huggingface_hub import constants

from ..errors import DataError, reason_of
from . import FORMATS

ZIP = "zip://"
HUB = "hf://datasets/"
NAMED_IMAGES = "hf_ngsan_images"  # name of the format of [`NamedImagesFormatter`]


class OwnFiles:
    """The files of a dataset: of a folder, of the folder of a file, or of a name on the Hub, there or in the caches."""

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
        """Returns where a file lies that the dataset names, by a path or as `zip://MEMBER::ARCHIVE`; raises a DataError
        for a URL, or a file outside of the dataset."""
        if path.startswith(ZIP):
            member, _, archive = path.removeprefix(ZIP).partition("::")
            if archive and "::" not in archive and "://" not in member:
                return f"{ZIP}{member}::{self.find(archive, where)}"
        is_of_hub = self.hub and path.startswith((f"{self.hub}@", f"{self.hub}/"))
        if is_of_hub and not re.search(r"::|(^|/)\.\.(/|$)", path):
            return path
        if "://" in path:
            raise DataError(f"{where}: the image is a URL, {path}; download the images first.")
        file = os.path.normpath(os.path.join(self.folders[0], path))
        folder, name = os.path.split(file)
        real = os.path.realpath(file) if os.path.islink(file) else os.path.join(self.real_folder_of(folder), name)
        if not (is_within(file, self.folders + self.real_folders) and is_within(real, self.real_folders)):
            raise DataError(
                f"{where}: the image {path} lies outside of the dataset's folder, {self.folders[0]}, or is a link that"
                " leads out of it; copy the files into it, and name them by relative paths."
            )
        return file


def is_within(file: str, folders: list[str]) -> bool:
    return file.startswith(tuple(os.path.join(folder, "") for folder in folders))


def with_own_files(dataset: Dataset, column: str, source: str, name: str) -> Dataset:
    """Returns a dataset whose images without bytes have absolute paths of its own files ([`OwnFiles`])."""
    own, parts, is_changed, first = OwnFiles(source), [], False, 0
    table = dataset.with_format("arrow")[:]
    for chunk in table.column(column).chunks:
        paths: list[Any] = chunk.field("path").to_pylist()
        without_bytes = chunk.field("bytes").is_null().to_pylist()
        for row, stored in enumerate(paths):
            if stored is not None and without_bytes[row]:
                paths[row] = own.find(stored, f"{name}, row {first + row}")
                is_changed |= paths[row] != stored
        fields = [
            pa.array(paths, field.type) if field.name == "path" else chunk.field(field.name) for field in chunk.type
        ]
        parts.append(pa.StructArray.from_arrays(fields, fields=list(chunk.type), mask=chunk.is_null()))
        first += len(chunk)
    if not is_changed:  # it stays memory-mapped
        return dataset
    table = table.set_column(table.column_names.index(column), column, pa.chunked_array(parts))
    return Dataset(table, info=datasets.DatasetInfo(features=dataset.features), split=dataset.split)


def decode_image(value: Mapping, feature: Image) -> PIL.Image.Image:
    """Decodes an image that is stored as `{"bytes", "path"}`, of a raster format, upright, in its stored mode."""
    content = read_image(value["path"]) if value["bytes"] is None else value["bytes"]
    try:
        opened = PIL.Image.open(io.BytesIO(content), formats=FORMATS)
    except PIL.UnidentifiedImageError:  # its message is an address in memory
        raise PIL.UnidentifiedImageError(f"it is no image of {', '.join(FORMATS)}, or is damaged") from None
    with opened as image:
        image.load()
        try:
            turned = PIL.ImageOps.exif_transpose(image)
        except Exception:  # Pillow's parser of EXIF raises anything on damaged data; the pixels have been read
            turned = image.copy()
    return turned.convert(feature.mode) if feature.mode and feature.mode != turned.mode else turned


def read_image(path: str) -> bytes:
    """Reads a file of a dataset, on the disk, in an archive there or on the Hub; raises a DataError for another URL."""
    if "://" not in path:
        return Path(path).read_bytes()
    place = path.partition("::")[2] if path.startswith(ZIP) else path
    if not place.startswith(HUB) and (place == path or "://" in place):
        raise DataError("it is a URL")
    with xopen(path, "rb") as file:
        return file.read()


class RasterImage(Image):
    """The type of a column of images that [`decode_image`] decodes."""

    def decode_example(self, value: Any, token_per_repo_id: Any = None) -> PIL.Image.Image:
        return decode_image(value, self)


def with_raster_images(dataset: Dataset) -> Dataset:
    for name, feature in dataset.features.items():
        if isinstance(feature, Image) and feature.decode:
            dataset = dataset.cast_column(name, RasterImage(mode=feature.mode))
    return dataset


def with_named_images(rows: Dataset, name: str, stream: Any = None) -> Dataset:
    """Returns rows whose images [`decode_image`] decodes, or those of a stream; errors name the row."""
    return rows.with_format(NAMED_IMAGES, origin=Origin(name), stream=stream)


@dataclass(frozen=True)
class Origin:
    """Name of a dataset in errors. Unpickling it in another process registers the format: it imports this module."""

    name: str


class NamedImagesFormatter(PythonFormatter):
    """The format of [`with_named_images`]."""

    def __init__(
        self,
        features: Features | None = None,
        origin: Origin = Origin("the dataset"),
        stream: Any = None,
        **options: Any,
    ):
        columns = features or {}
        self.images = {name: kind for name, kind in columns.items() if isinstance(kind, Image) and kind.decode}
        stored = {name: Image(decode=False) for name in self.images}
        # `map` of datasets asks for lazy rows, which would ask this class for each of their columns without end.
        super().__init__(features and Features({**columns, **stored}), **{**options, "lazy": False})
        self.origin, self.stream = origin, stream

    def format_row(self, pa_table: pa.Table) -> Mapping:
        return {name: values[0] for name, values in self.format_batch(pa_table).items()}

    def format_batch(self, pa_table: pa.Table) -> Mapping:
        batch = super().format_batch(pa_table)
        for name in self.images.keys() & batch:
            stored = batch[name] if self.stream is None else self.stream.images_at(batch[name])
            batch[name] = [self.decode(value, name, pa_table, row) for row, value in enumerate(stored)]
        return batch

    def decode(self, value: Any, column: str, rows: pa.Table, row: int) -> Any:
        try:
            return decode_image(value, self.images[column])
        except MemoryError:
            raise
        except Exception as error:  # Pillow raises errors of many types for damaged files
            known = [f"{key} {rows[key][row]}" for key in ("image_id", "file_name") if key in rows.column_names]
            which = f"the image with {', '.join(known)}" if known else "an image"
            raise DataError(
                f"{self.origin.name}: {which} cannot be read ({reason_of(error)}); replace it or leave its row out."
            ) from error


# datasets (tested with 5.2) has no public way to add a format, only to transform rows that have been decoded.
_register_formatter(NamedImagesFormatter, NAMED_IMAGES)

"""Opens the images of a dataset; only its own files are opened, regardless of the paths in its rows."""

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import PIL.Image
import PIL.ImageOps
import pyarrow as pa
from datasets import Dataset, Features, Image, LargeList, List
from datasets.formatting import PythonFormatter, _register_formatter
from datasets.utils.file_utils import xopen

from ..errors import DataError, reason_of
from . import HUB, IMAGE_FORMATS, ZIP, OwnFiles

MEDIA = ("image", "video", "frames")  # columns with files that this package opens
NAMED_IMAGES = "hf_ngsan_images"  # name of the format of [`NamedImagesFormatter`]


def with_own_media(dataset: Dataset, names: Collection[str] = ()) -> Dataset:
    """Removes columns for which the datasets library would open files (at any depth of their types), except images, and
    the columns in `names`."""
    kinds = {name: kind for name, kind in dataset.features.items() if not isinstance(kind, Image)}
    return dataset.remove_columns([name for name, kind in kinds.items() if name in names or holds_media(kind)])


def holds_media(kind: Any) -> bool:
    if isinstance(kind, Mapping):
        return any(map(holds_media, kind.values()))
    return holds_media(kind.feature) if isinstance(kind, List | LargeList) else hasattr(kind, "decode_example")


def with_own_files(dataset: Dataset, column: str, own_files: OwnFiles, name: str) -> Dataset:
    """Returns a dataset in which images without bytes have absolute paths of the dataset's files."""
    parts, is_changed, first = list[pa.Array](), False, 0
    table = dataset.with_format("arrow")[:]
    for chunk in table.column(column).chunks:
        paths: list[Any] = chunk.field("path").to_pylist()
        without_bytes = chunk.field("bytes").is_null().to_pylist()
        for row, stored in enumerate(paths):
            if stored is not None and without_bytes[row]:
                paths[row] = own_files.find(stored, f"{name}, row {first + row}")
                is_changed |= paths[row] != stored
        fields = {field.name: chunk.field(field.name) for field in chunk.type}
        fields["path"] = pa.array(paths, fields["path"].type)
        parts.append(pa.StructArray.from_arrays([*fields.values()], fields=list(chunk.type), mask=chunk.is_null()))
        first += len(chunk)
    if not is_changed:  # it stays memory-mapped
        return dataset
    table = table.set_column(table.column_names.index(column), column, pa.chunked_array(parts))
    return Dataset(table, info=datasets.DatasetInfo(features=dataset.features), split=dataset.split)


def decode_image(value: Mapping, feature: Image) -> PIL.Image.Image:
    """Decodes a raster image stored as `{"bytes", "path"}`; the result is upright, in the stored mode."""
    content = read_image(value["path"]) if value["bytes"] is None else value["bytes"]
    try:
        opened = PIL.Image.open(io.BytesIO(content), formats=IMAGE_FORMATS)
    except PIL.UnidentifiedImageError:  # its message only has a memory address
        raise PIL.UnidentifiedImageError(f"it is not an image of {', '.join(IMAGE_FORMATS)}, or is damaged") from None
    with opened as image:
        image.load()
        try:
            turned = PIL.ImageOps.exif_transpose(image)
        except Exception:  # Pillow's EXIF parser raises any exception for damaged data; the pixels have been read
            turned = image.copy()
    return turned.convert(feature.mode) if feature.mode and feature.mode != turned.mode else turned


def read_image(path: str) -> bytes:
    """Reads a file of a dataset from disk, from an archive or from the Hub; raises a DataError for other URLs."""
    if "://" not in path:
        return Path(path).read_bytes()
    place = path.partition("::")[2] if path.startswith(ZIP) else path
    if not place.startswith(HUB) and (place == path or "://" in place):
        raise DataError("it is a URL")
    with xopen(path, "rb") as file:
        return file.read()


class RasterImage(Image):
    """The type of an image column that [`decode_image`] decodes."""

    def decode_example(self, value: Any, token_per_repo_id: Any = None) -> PIL.Image.Image:
        return decode_image(value, self)


def with_raster_images(dataset: Dataset) -> Dataset:
    for name, feature in dataset.features.items():
        if isinstance(feature, Image) and feature.decode:
            dataset = dataset.cast_column(name, RasterImage(mode=feature.mode))
    return dataset


def with_named_images(rows: Dataset, name: str, stream: Any = None) -> Dataset:
    """Returns rows with images decoded by [`decode_image`] or read from a stream; errors name the row."""
    return rows.with_format(NAMED_IMAGES, origin=Origin(name), stream=stream)


@dataclass(frozen=True)
class Origin:
    """Name of a dataset for errors. Unpickling it imports this module, which registers the format."""

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
        # `map` of datasets uses lazy rows, which would call this class for each of their columns endlessly.
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
        except Exception as error:  # Pillow raises many types of errors for damaged files
            known = [f"{key} {rows[key][row]}" for key in ("image_id", "file_name") if key in rows.column_names]
            which = f"the image with {', '.join(known)}" if known else "an image"
            problem = f"{self.origin.name}: {which} cannot be read ({reason_of(error)})"
            raise DataError(f"{problem}; replace it or leave its row out.") from error


# datasets (tested with 5.2) has no public way to add a format, only transforms of decoded rows.
_register_formatter(NamedImagesFormatter, NAMED_IMAGES)

"""Formats of rows that the datasets library lacks: whole arrays of vectors, and images whose errors name their rows.

`with_whole_arrays(rows)` gives the same arrays as the format "numpy", faster. `with_named_images(rows, name)` decodes
images when they are read; the error of a damaged image names its row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, Image
from datasets.formatting import NumpyFormatter, PythonFormatter, _register_formatter
from datasets.formatting.formatting import NumpyArrowExtractor

from .errors import DataError, reason_of
from .images.decoding import decode_image

WHOLE_ARRAYS, NAMED_IMAGES = "hf_ngsan_whole_arrays", "hf_ngsan_images"


def with_whole_arrays(rows: Any) -> Any:
    """Returns rows with equal values that are read faster: the format "numpy" makes an array of each vector of a list.

    Args:
        rows: a sequence of rows; returned unchanged unless it is a `Dataset` with the format "numpy". Do not save the
            result: only this package knows its format.
    """
    form = rows.format if isinstance(rows, Dataset) else {"type": None}
    return rows.with_format(**{**form, "type": WHOLE_ARRAYS}) if form["type"] == "numpy" else rows


def with_named_images(rows: Dataset, name: str, stream: Any = None) -> Dataset:
    """Returns rows whose images raise a [`DataError`] with the name of their row if they cannot be decoded.

    Args:
        rows: a dataset with a column of images.
        name: name of the dataset in errors.
        stream: the [`~images.streaming.ImageStream`] with the images, if the rows only have their numbers there.
    """
    return rows.with_format(NAMED_IMAGES, origin=Origin(name), stream=stream)


class WholeArrayExtractor(NumpyArrowExtractor):
    def _arrow_array_to_numpy(self, pa_array: pa.Array | pa.ChunkedArray) -> Any:
        chunks = pa_array.chunks if isinstance(pa_array, pa.ChunkedArray) else [pa_array]
        found = [arrays_of(chunk) for chunk in chunks]
        if any(arrays is None for arrays in found):
            return super()._arrow_array_to_numpy(pa_array)
        return [array for arrays in found if arrays is not None for array in arrays]


def arrays_of(lists: pa.Array) -> list[np.ndarray] | None:
    """Returns lists of vectors of one dimension as arrays `(N, D)`; None for anything else, or with null values."""
    if not pa.types.is_list(lists.type) or not pa.types.is_fixed_size_list(lists.type.value_type):
        return None
    bounds = lists.offsets.to_numpy()
    vectors = lists.values.slice(bounds[0], bounds[-1] - bounds[0])
    numbers = vectors.flatten()
    if not pa.types.is_floating(numbers.type) or lists.null_count or vectors.null_count or numbers.null_count:
        return None
    table = numbers.to_numpy(zero_copy_only=False).reshape(len(vectors), vectors.type.list_size)
    return [table[start:end] for start, end in pairwise(bounds - bounds[0])]


class WholeArrayFormatter(NumpyFormatter):
    """The format "numpy" of `datasets`, whose lists of vectors become arrays `(N, D)` in one step."""

    numpy_arrow_extractor = WholeArrayExtractor


@dataclass(frozen=True)
class Origin:
    """Name of a dataset in errors. Unpickling it in another process registers the format: it imports this module."""

    name: str


class NamedImagesFormatter(PythonFormatter):
    """The format of Python objects, whose images [`decode_image`] decodes.

    Args:
        features: of the dataset.
        origin: of its rows.
        stream: see [`with_named_images`].
    """

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

    def format_column(self, pa_table: pa.Table) -> list:
        return self.format_batch(pa_table)[pa_table.column_names[0]]

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
_register_formatter(WholeArrayFormatter, WHOLE_ARRAYS)
_register_formatter(NamedImagesFormatter, NAMED_IMAGES)

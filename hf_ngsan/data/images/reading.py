"""Rows of images are decoded when they are read, and an image that cannot be is named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from datasets import Dataset, Features, Image
from datasets.formatting import PythonFormatter, _register_formatter

from ..errors import DataError, reason_of
from .decoding import decode_image

FORMAT = "hf_ngsan_images"


@dataclass(frozen=True)
class Origin:
    """Where rows come from, for errors. Its class brings the format along where rows are sent to another process."""

    name: str


class NamingFormatter(PythonFormatter):
    """The format of Python objects, whose images [`decode_image`] decodes, and whose errors name the row.

    Args:
        features: of the dataset.
        origin: of its rows.
    """

    def __init__(self, features: Features | None = None, origin: Origin = Origin("the dataset"), **options: Any):
        columns = features or {}
        self.images = {name: kind for name, kind in columns.items() if isinstance(kind, Image) and kind.decode}
        stored = {name: Image(decode=False) for name in self.images}
        super().__init__(features and Features({**columns, **stored}), **options)
        self.origin = origin

    def format_row(self, pa_table: pa.Table) -> Mapping:
        try:
            row = super().format_row(pa_table)
            return {**row, **{name: decode_image(row[name], self.images[name]) for name in self.images.keys() & row}}
        except Exception as error:  # Pillow says in many ways that a file is damaged
            raise self.unreadable(pa_table, error) from error

    def format_column(self, pa_table: pa.Table) -> list:
        return self.format_batch(pa_table)[pa_table.column_names[0]]

    def format_batch(self, pa_table: pa.Table) -> Mapping:
        try:
            batch = super().format_batch(pa_table)
            decoded = {
                name: [decode_image(value, self.images[name]) for value in batch[name]]
                for name in self.images.keys() & batch
            }
            return {**batch, **decoded}
        except Exception:
            for row in range(len(pa_table)):
                self.format_row(pa_table.slice(row, 1))
            raise

    def unreadable(self, row: pa.Table, error: Exception) -> Exception:
        if isinstance(error, MemoryError):
            return error
        known = [f"{key} {row[key][0]}" for key in ("image_id", "file_name") if key in row.column_names]
        which = f"the image with {', '.join(known)}" if known else "an image"
        return DataError(
            f"{self.origin.name}: {which} cannot be read ({reason_of(error)}); replace it or leave its row out."
        )


_register_formatter(NamingFormatter, FORMAT)


def naming_rows(dataset: Dataset, name: str) -> Dataset:
    """Returns the dataset, whose images raise a [`DataError`] that names their row where they cannot be decoded."""
    return dataset.with_format(FORMAT, origin=Origin(name))

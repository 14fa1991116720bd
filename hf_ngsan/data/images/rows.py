"""Rows of the feature contract from a dataset of images with captions."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, Image, List, Value, concatenate_datasets

from ..coco_files import number_at_the_end
from ..errors import DataError
from ..row_formats import with_named_images
from .columns import Columns, is_text_list
from .identity import content_keys, first_rows, image_parts, other_images, whole_numbers
from .own_files import with_own_files

TYPES = {
    "image_id": Value("int64"),
    "captions": List(Value("string")),
    "file_name": Value("string"),
    "width": Value("int32"),
    "height": Value("int32"),
}


def make_rows(dataset: Dataset, columns: Columns, numbers: list[int] | None, name: str, source: str) -> Dataset:
    """Returns the images in some rows of a dataset, each with all of its captions."""
    images = image_column(dataset, columns.image, source, name)
    table = dataset.select_columns(columns.besides_images).with_format("arrow")[:]
    table.validate(full=True)
    in_split = np.full(len(dataset), numbers is None)
    in_split[numbers or []] = True
    check_images(images, in_split, name)
    owners = np.where(in_split, np.arange(len(dataset)), -1)
    if len(columns.captions) == 1 and not is_text_list(dataset.features[columns.captions[0]]):
        owners = first_rows(image_keys(table, columns, images, in_split, name), in_split)
        refuse_other_images(images, owners, table, columns, name)
    found, chosen = all_but_images(table, columns, owners, names_of_files(table, columns, images, source), name)
    metadata = Dataset.from_dict(found, features=Features({column: TYPES[column] for column in found}))
    rows = concatenate_datasets([metadata, images], axis=1)
    rows.info.description = ""  # it would be taken for the provenance of features
    if len(chosen) < len(rows):
        rows = rows.select(chosen)
    return with_named_images(rows, name)


def all_but_images(
    table: pa.Table, columns: Columns, owners: np.ndarray, file_names: list[str | None] | None, name: str
) -> tuple[dict[str, Any], np.ndarray]:
    """Returns the columns besides the images, with the types of `TYPES`, and the rows to keep.

    Args:
        table: columns of a dataset of n rows.
        columns: their names.
        owners: `(n,)`, the first row of the image of each row; -1 for a row that is left out.
        file_names: file names of the images, if known.
        name: name of the dataset in messages.
    """
    chosen = np.flatnonzero(owners == np.arange(len(owners)))
    is_image_a_row = len(chosen) == np.count_nonzero(owners >= 0)
    found: dict[str, Any] = {}
    if columns.captions:
        found["captions"] = gather_captions([table[column] for column in columns.captions], owners)
        chosen = with_captions(found, chosen, name)
    if file_names is not None:
        found["file_name"] = pa.array(file_names, pa.string())
    for side, column in zip(("width", "height"), columns.size, strict=False):
        found[side] = table[column].cast(pa.int32())
    id_column = columns.id or (columns.row_id if is_image_a_row else None)
    return {"image_id": image_ids(table, id_column, file_names, chosen, name, len(owners)), **found}, chosen


def image_column(dataset: Dataset, column: str, source: str, name: str) -> Dataset:
    """Returns only the images, as column `image`, with absolute paths where no bytes are stored."""
    images = dataset.select_columns([column]).with_format(None)
    if not (isinstance(dataset.features[column], Image) and dataset.features[column].decode):
        images = images.cast_column(column, Image())
    images = with_own_files(images, column, source, name)
    return images if column == "image" else images.rename_column(column, "image")


def check_images(images: Dataset, in_split: np.ndarray, name: str) -> None:
    """Raises a DataError for the first row without an image, and if the first file is missing.

    Other missing files are found when they are read, since there may be millions.
    """
    first, is_checked = 0, False
    for data, paths in image_parts(images):
        for place in np.flatnonzero(np.asarray(data.is_null()) & in_split[first : first + len(data)]).tolist():
            path, where = paths[place].as_py(), f"{name}, row {first + place}"
            if path is None:
                raise DataError(f"{where} has no image; leave the row out.")
            if not (is_checked or "://" in path or os.path.exists(path)):
                raise DataError(f"{where}: there is no image file {path}; put the files where the paths say.")
            is_checked = True
        first += len(data)


def image_keys(table: pa.Table, columns: Columns, images: Dataset, in_split: np.ndarray, name: str) -> list[Any]:
    """Returns keys that are equal for rows of the same image."""
    if columns.key is None:
        return content_keys(images)
    keys = table[columns.key].to_pylist()
    missing = [row for row in np.flatnonzero(in_split) if keys[row] is None]
    if missing:
        raise DataError(f"{name}, row {missing[0]}: {columns.key} is missing; rows of one image must share it.")
    return keys


def refuse_other_images(images: Dataset, owners: np.ndarray, table: pa.Table, columns: Columns, name: str) -> None:
    """Raises a DataError for rows with the same id or file name but different images."""
    if columns.key is None:  # rows were merged by the images themselves
        return
    for row, first in other_images(images, owners):
        raise DataError(
            f"{name}: rows {first} and {row} have the {columns.key} {table[columns.key][row].as_py()!r:.60}, but"
            " different images; give each image one of its own, or leave a row out."
        )


def with_captions(found: dict[str, pa.Array], chosen: np.ndarray, name: str) -> np.ndarray:
    """Returns the rows with captions; if no row has any, drops the column and returns all rows."""
    number = np.asarray(found["captions"].value_lengths())[chosen]
    if not number.any():
        del found["captions"]
        return chosen
    left_out = int((number == 0).sum())
    if left_out:
        warnings.warn(f"{name}: {left_out} of {len(chosen)} images have no caption and were left out.", stacklevel=4)
    return chosen[number > 0]


def names_of_files(table: pa.Table, columns: Columns, images: Dataset, source: str) -> list[str | None] | None:
    """Returns the column of file names or, if every image has a path, the path relative to the source's folder."""
    if columns.file_name is not None:
        return table[columns.file_name].to_pylist()
    stored = (path for _, paths in image_parts(images) for path in paths.to_pylist())
    paths = [Path(path) for path in stored if path is not None]
    if len(paths) < len(images):
        return None
    folder = Path(os.path.abspath(source))
    is_inside = folder.is_dir() and all(path.is_relative_to(folder) for path in paths)
    return [path.relative_to(folder).as_posix() if is_inside else path.name for path in paths]


def image_ids(
    table: pa.Table,
    column: str | None,
    file_names: list[str | None] | None,
    chosen: np.ndarray,
    name: str,
    num_rows: int,
) -> np.ndarray:
    """Returns a number for every row, unique among the chosen rows."""
    numbers = None if column is None else whole_numbers(table[column])
    if numbers is not None:
        if len(np.unique(numbers[chosen])) == len(chosen):
            return numbers
        warnings.warn(
            f"{name}: several images have the same {column}, so that their row numbers become their image_id.",
            stacklevel=4,
        )
    elif file_names is not None:
        found = [number_at_the_end(file_name or "") for file_name in file_names]
        of_chosen = {found[row] for row in chosen}
        if None not in of_chosen and len(of_chosen) == len(chosen):
            return np.array([-1 if number is None else number for number in found])
    return np.arange(num_rows)


def gather_captions(columns: list[pa.ChunkedArray], owners: np.ndarray) -> pa.ListArray:
    """Gathers the captions of each image at one row.

    Args:
        columns: n strings or lists of strings each; null for no caption.
        owners: `(n,)`, the row that gets the captions of each row; -1 leaves them out.

    Returns:
        n lists of captions, in the order of rows and, within a row, of columns. Captions without a word are left out.
    """
    parts = [part for column in columns for part in texts_of(column)]
    rows = np.concatenate([part_rows for part_rows, _ in parts])
    texts = pa.chunked_array([part_texts for _, part_texts in parts], pa.string())
    has_words = np.asarray(pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False))
    places = np.flatnonzero(has_words & (owners[rows] >= 0))
    owner = owners[rows[places]]
    places = places[np.lexsort((rows[places], owner))]  # a stable sort: the columns of a row stay in order
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(owners)))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts.take(pa.array(places)).combine_chunks())


def texts_of(column: pa.ChunkedArray) -> Iterator[tuple[np.ndarray, pa.Array]]:
    """Yields row numbers and the strings in these rows, chunk by chunk."""
    first = 0
    for chunk in column.chunks:
        rows, texts = np.arange(len(chunk)), chunk
        if pa.types.is_list(chunk.type) or pa.types.is_large_list(chunk.type):
            rows, texts = np.asarray(pc.list_parent_indices(chunk)), pc.list_flatten(chunk)
        elif pa.types.is_fixed_size_list(chunk.type):
            rows, texts = np.asarray(pc.list_parent_indices(chunk)), chunk.flatten()
        yield first + rows.astype(np.int64), texts.cast(pa.string())
        first += len(chunk)

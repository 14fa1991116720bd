"""Makes rows of the feature contract from a dataset of images with captions: finds its columns by type and name, and
merges rows so that each image occurs once, with all of its captions.
"""

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, Features, Image, LargeList, List, Value, concatenate_datasets

from ...io.files import sha256
from ..coco_files import number_at_the_end
from ..errors import DataError
from . import OwnFiles
from .files import with_named_images, with_own_files

IMAGE_NAMES = ("image", "img", "images", "picture", "photo", "jpg", "jpeg", "png", "bytes", "image_bytes")
CAPTION_NAMES = ("captions", "caption", "sentences", "sentence", "texts", "text", "descriptions", "description", "txt")
NUMBERED_NAMES = (*CAPTION_NAMES, "comments", "comment")
CAPTION_COLUMN = re.compile(rf"({'|'.join(NUMBERED_NAMES)})(?:[_. -]?(\d+))?")
ID_NAMES = ("image_id", "imageid", "img_id", "imgid", "coco_id", "cocoid")
FILE_NAMES = ("file_name", "filename", "image_name", "image_file", "image_path", "img_path", "file_path", "filepath")
TYPES = {"image_id": Value("int64"), "captions": List(Value("string")), "file_name": Value("string")}


def warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)


@dataclass(frozen=True)
class Columns:
    """Names of the columns that are read, None for missing ones; `row_id` is a column `id`, of the image or the
    caption."""

    image: str
    captions: tuple[str, ...]
    id: str | None
    row_id: str | None
    file_name: str | None

    @property
    def key(self) -> str | None:
        """The column that is equal in the rows of one image."""
        return self.id or self.file_name

    @property
    def besides_images(self) -> list[str]:
        names = (*self.captions, self.id, self.row_id, self.file_name)
        return list(dict.fromkeys(filter(None, names)))


def find_columns(dataset: Dataset, source: str, image: str | None, captions: str | None) -> Columns:
    """Finds the columns by type and name, unless they are given; `source` is a name for errors."""
    if image is None:
        image = find_image_column(dataset, source)
    else:
        refuse_column(dataset, source, "image", image, is_image_column)
    if captions is None:
        chosen = find_caption_columns(dataset, source)
    else:
        chosen = [captions] if captions in dataset.column_names else [name.strip() for name in captions.split("+")]
        for name in chosen:
            refuse_column(dataset, source, "captions", name, is_text_or_list)
    return Columns(
        image=image,
        captions=tuple(chosen),
        id=find_name(dataset, ID_NAMES, lambda kind: isinstance(kind, Value | ClassLabel)),
        row_id=find_name(dataset, ("id",), lambda kind: isinstance(kind, Value | ClassLabel)),
        file_name=find_name(dataset, (*FILE_NAMES, "__key__"), is_text),
    )


def find_image_column(dataset: Dataset, source: str) -> str:
    """Finds a column of images, of encoded images, or of bytes with a usual name of images, in this order."""
    columns = dataset.features.items()
    names = (
        [name for name, kind in columns if isinstance(kind, Image)]
        or [name for name, kind in columns if is_encoded_image(kind)]
        or [name for name, kind in columns if name.lower() in IMAGE_NAMES and is_bytes(kind)]
    )
    best = names[0] if len(names) == 1 else find_name(dataset.select_columns(names), IMAGE_NAMES)
    if best is None:
        problem = f"{source} has {len(names)} columns of images ({', '.join(names) or 'none'})"
        raise DataError(f"{problem}; choose one with image=COLUMN, of {', '.join(dataset.column_names)}.")
    return best


def find_caption_columns(dataset: Dataset, source: str) -> list[str]:
    """Finds columns with the first name in `CAPTION_NAMES`, such as `caption`, `caption_1`; warns about others."""
    texts = [name for name, kind in dataset.features.items() if is_text_or_list(kind)]
    matches = [(match, name) for name in texts if (match := CAPTION_COLUMN.fullmatch(name.lower()))]
    numbered = sorted((NUMBERED_NAMES.index(match[1]), int(match[2] or -1), name) for match, name in matches)
    places = [place for place, number, _ in numbered if number >= 0 or NUMBERED_NAMES[place] in CAPTION_NAMES]
    chosen = [name for place, _, name in numbered if place == min(places, default=None)]
    candidates = [*(name for _, _, name in numbered), *(name for name in texts if "caption" in name.lower())]
    if others := [name for name in dict.fromkeys(candidates) if name not in chosen]:
        every, read = "+".join([*chosen, *others]), f"from {', '.join(chosen)} only" if chosen else "from no column"
        warn(f"{source}: captions are read {read}; to also read {others[0]}, use captions={every}.")
    return chosen


def refuse_column(dataset: Dataset, source: str, key: str, name: str, fits: Callable[[object], bool]) -> None:
    """Raises a DataError for a column, chosen by the user, that does not exist or has another type."""
    fitting = [column for column, kind in dataset.features.items() if fits(kind)]
    if name not in fitting:
        columns = ", ".join(fitting) or "none"
        raise DataError(f"{source} has no column {name!r} for {key}=; columns of its type: {columns}.")


def find_name(
    dataset: Dataset, names: tuple[str, ...], fits: Callable[[object], bool] = lambda kind: True
) -> str | None:
    """Returns the first column in a list of names, ignoring case; None if there is none or its type is wrong."""
    known = {name.lower(): name for name in dataset.column_names}
    name = next((known[name] for name in names if name in known), None)
    return name if name is not None and fits(dataset.features[name]) else None


def is_bytes(kind: object) -> bool:
    return isinstance(kind, Value) and kind.dtype in ("binary", "large_binary")


def is_text(kind: object) -> bool:
    return isinstance(kind, Value) and kind.dtype in ("string", "large_string", "string_view")


def is_text_or_list(kind: object) -> bool:
    return is_text(kind.feature if isinstance(kind, List | LargeList) else kind)


def is_encoded_image(kind: object) -> bool:
    """Returns whether a type is the struct that the datasets library uses for images."""
    if not isinstance(kind, dict) or set(kind) != {"bytes", "path"}:
        return False
    return is_bytes(kind["bytes"]) or kind["bytes"] == Value("null")


def is_image_column(kind: object) -> bool:
    return isinstance(kind, Image) or is_encoded_image(kind) or is_bytes(kind) or is_text(kind)


def image_rows(
    dataset: Dataset, columns: Columns, numbers: list[int] | None, name: str, source: str, links: bool = False
) -> Dataset:
    """Returns the images in `rows` of a dataset, each with all of its captions."""
    images = dataset.select_columns([columns.image]).with_format(None)
    if not (isinstance(dataset.features[columns.image], Image) and dataset.features[columns.image].decode):
        images = images.cast_column(columns.image, Image())
    images = with_own_files(images, columns.image, OwnFiles(source, links), name)
    images = images if columns.image == "image" else images.rename_column(columns.image, "image")
    table = dataset.select_columns(columns.besides_images).with_format("arrow")[:]
    in_split = np.full(len(dataset), numbers is None)
    in_split[numbers or []] = True
    owners = np.where(in_split, np.arange(len(dataset)), -1)
    parts = [*image_parts(images)]
    has_bytes = any(len(data) > data.null_count for data, _ in parts)
    paths = [path for _, part in parts for path in part.to_pylist()]
    if len(columns.captions) == 1 and not isinstance(dataset.features[columns.captions[0]], List | LargeList):
        # rows of the same image have the same id or file name, or else the same bytes or path
        digests = image_digests(images, read_files=False)
        keys = list(digests) if columns.key is None else table[columns.key].to_pylist()
        owners = first_rows(keys, in_split)
        if columns.key is not None:
            refuse_ambiguous_images(images, owners, keys, f"{name}: rows", columns.key)
    elif columns.id is None and not has_bytes:  # rows of the same file
        owners = first_rows([row if path is None else path for row, path in enumerate(paths)], in_split)
    content, chosen = all_but_images(table, columns, owners, names_of_files(table, columns, paths, source), name)
    metadata = Dataset.from_dict(content, features=Features({column: TYPES[column] for column in content}))
    rows = concatenate_datasets([metadata, images], axis=1)
    rows.info.description = ""  # it would be read as the provenance of features
    if len(chosen) < len(rows):
        rows = rows.select(chosen)
    return with_named_images(rows, name)


def all_but_images(
    table: pa.Table, columns: Columns, owners: np.ndarray, file_names: list[str | None] | None, name: str
) -> tuple[dict[str, Any], np.ndarray]:
    """Returns the columns except the images, and the rows to keep; `owners` `(n,)` is the first row of the same image
    for each row, -1 for a row that is left out."""
    chosen = np.flatnonzero(owners == np.arange(len(owners)))
    is_image_a_row = len(chosen) == np.count_nonzero(owners >= 0)
    content: dict[str, Any] = {}
    if columns.captions:
        captions = gather_captions([table[column] for column in columns.captions], owners)
        has_captions = np.array([bool(captions[row]) for row in chosen.tolist()], dtype=bool)
        if has_captions.any():
            content["captions"] = captions
            if left_out := int((~has_captions).sum()):
                row = chosen[has_captions.argmin()]
                such = f"such as {file_names[row] if file_names else f'row {row}'}"
                warn(f"{name}: {left_out} of {len(chosen)} images ({such}) have no caption and were left out.")
            chosen = chosen[has_captions]
    if file_names is not None:
        content["file_name"] = pa.array(file_names, pa.string())
    id_column = columns.id or (columns.row_id if is_image_a_row else None)
    return {"image_id": image_ids(table, id_column, file_names, chosen, name, len(owners)), **content}, chosen


def image_parts(images: Dataset, batch_size: int = 1024) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yields the bytes and paths of undecoded images, `batch_size` rows at a time, without reading the bytes."""
    for table in images.with_format("arrow").iter(batch_size=batch_size):
        for chunk in table.column("image").chunks:
            yield tuple(pc.if_else(chunk.is_valid(), chunk.field(name), None) for name in ("bytes", "path"))


def image_digests(images: Dataset, read_files: bool) -> Iterator[bytes]:
    """Yields a checksum of the bytes of each image, or of its file, or the path of a file that is not read."""
    for data, paths in image_parts(images, batch_size=64):
        for content, path in zip(data, paths, strict=True):
            if content.is_valid:
                yield hashlib.sha256(content.as_buffer()).digest()
            elif read_files and os.path.isfile(path.as_py()):
                yield bytes.fromhex(sha256(Path(path.as_py())))
            else:  # in an archive; or missing, then reading the image raises an error
                yield str(path.as_py()).encode()


def first_rows(keys: Sequence, is_used: np.ndarray) -> np.ndarray:
    """Returns, for each of n rows, the first used row with the same key, `(n,)`; -1 at unused rows."""
    first: dict[Any, int] = {}
    places = np.full(len(is_used), -1)
    for row in np.flatnonzero(is_used).tolist():
        places[row] = first.setdefault(keys[row], row)
    return places


def refuse_ambiguous_images(images: Dataset, owners: np.ndarray, keys: Sequence, name: str, column: str) -> None:
    others = np.flatnonzero((owners >= 0) & (owners != np.arange(len(owners))))
    rows = np.union1d(others, owners[others])
    digests = dict(zip(rows.tolist(), image_digests(images.select(rows), read_files=True), strict=True))
    for row in others.tolist():
        if digests[row] != digests[owners[row]]:
            raise DataError(f"{name} {owners[row]} and {row} are different but share the {column} {keys[row]!r:.60}.")


def names_of_files(table: pa.Table, columns: Columns, paths: list[str | None], source: str) -> list[str | None] | None:
    """Returns the column of file names or, if every image has a path, the paths relative to the source's folder."""
    if columns.file_name is not None:
        return table[columns.file_name].to_pylist()
    if None in paths:
        return None
    folder = Path(os.path.abspath(source))
    files = [Path(path) for path in paths if path is not None]
    is_inside = folder.is_dir() and all(file.is_relative_to(folder) for file in files)
    return [file.relative_to(folder).as_posix() if is_inside else file.name for file in files]


def image_ids(
    table: pa.Table,
    column: str | None,
    file_names: list[str | None] | None,
    chosen: np.ndarray,
    name: str,
    num_rows: int,
) -> np.ndarray:
    numbers = None if column is None else whole_numbers(table[column])
    if numbers is not None:
        if len(np.unique(numbers[chosen])) == len(chosen):
            return numbers
        warn(f"{name}: several images have the same {column}; row numbers are used as image_id instead.")
    elif file_names is not None:
        in_names = [number_at_the_end(file_name or "") for file_name in file_names]
        chosen_numbers = {in_names[row] for row in chosen}
        if None not in chosen_numbers and len(chosen_numbers) == len(chosen):
            return np.array([-1 if number is None else number for number in in_names])
    return np.arange(num_rows)


def whole_numbers(column: pa.ChunkedArray) -> np.ndarray | None:
    """Returns the values as int64 if all are integers, possibly as strings; else None."""
    try:
        return None if column.null_count else np.asarray(column.cast(pa.int64()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # fractions, words, or numbers of more than 64 bits
        return None


def gather_captions(columns: list[pa.ChunkedArray], owners: np.ndarray) -> list[list[str]]:
    """Returns, for each row, the non-empty captions of the image whose first row it is; see [`all_but_images`]."""
    captions: list[list[str]] = [[] for _ in owners]
    for owner, *cells in zip(owners.tolist(), *(column.to_pylist() for column in columns), strict=True):
        for cell in cells if owner >= 0 else ():
            texts = cell if isinstance(cell, list) else [cell]
            captions[owner] += [str(text) for text in texts if text is not None and str(text).strip()]
    return captions

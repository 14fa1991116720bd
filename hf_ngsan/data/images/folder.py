"""Folders of photographs: image files of any names, with `metadata.csv` or with a text file beside each.

```python
read_folder(Path("photos"))["train"][0]  # {"image": <PIL image>, "captions": ["Two cats sleep on a bench."]}
```
"""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from datasets import Dataset, Image

from ..errors import DataError, naming_damage
from ..image_files import is_image, visible_files
from ..readers import OTHER_NAMES, VALIDATION
from .files import OwnFiles

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Files that name images of their folder and of those below it, with their captions."""
BESIDE = (".txt", ".caption")
"""Suffixes of a file with the captions of the image beside it, one a line."""
TABLES = {".parquet", ".arrow", ".tar"}
"""Suffixes of files that hold images themselves."""
SPLITS = {"train", "test", VALIDATION, *OTHER_NAMES[VALIDATION]}
"""Names, in any case, of folders directly below the root that are splits."""
FILE_NAME = "file_name"
"""Column of metadata with the path of an image; `left_file_name` is that of the image `left`."""


def is_metadata(name: str) -> bool:
    return name.rpartition("/")[2].lower() in METADATA


def holds_rows(name: str) -> bool:
    return not TABLES.isdisjoint(f".{suffix}" for suffix in name.rpartition("/")[2].lower().split(".")[1:])


def holds_photographs(folder: Path) -> bool:
    """Returns whether a folder has image files or metadata; beside Parquet, Arrow or tar files, whether it has both."""
    names = list(visible_files(folder))
    metadata, has_images = list(filter(is_metadata, names)), any(map(is_image, names))
    if any(holds_rows(name) and not is_metadata(name) for name in names):
        return has_images and bool(metadata)
    return has_images or any(not name.endswith(".parquet") for name in metadata)


def read_folder(folder: Path) -> dict[str, Dataset]:
    """Reads a folder of photographs, one dataset a split.

    A split is a folder `train`, `validation` (`val`, `valid`, `dev`) or `test` directly below the root, unless the root
    has metadata. No other name of a file or folder makes a split; all images are then `train`.

    The images of a split with metadata are those that these name. Of a split without, they are all, and the lines of
    `photo.txt` (or `photo.caption`) are the captions of `photo.jpg`.

    Returns:
        Rows with `image`, undecoded, and the other columns of the metadata or, if there are any, `captions`.

    Raises:
        DataError: metadata or captions cannot be read, name a file outside of the folder, or splits are unclear.
    """
    names = sorted(visible_files(folder))
    parts = {}
    for split, files in splits_of([name for name in names if is_image(name) or is_metadata(name)], folder).items():
        metadata = list(filter(is_metadata, files))
        columns = read_metadata(folder, metadata) if metadata else read_beside(folder, files, names)
        with naming_damage(f"{folder}, split {split}"):
            rows = Dataset.from_dict({column: values for column, (values, _) in columns.items()})
        for column, (_, holds_images) in columns.items():
            rows = rows.cast_column(column, Image()) if holds_images else rows
        parts[split] = rows
    return parts


def splits_of(names: list[str], folder: Path) -> dict[str, list[str]]:
    """Returns the names of images and metadata by split, see [`read_folder`].

    Raises:
        DataError: there are folders of splits, and images that are in none of them.
    """
    parts: dict[str, list[str]] = {}
    for name in names:
        first, inside, _ = name.partition("/")
        split = first.lower() if inside and first.lower() in SPLITS else ""
        parts.setdefault(split, []).append(name)
    outside = parts.pop("", [])
    if not outside:
        return parts
    has_metadata = any(is_metadata(name) and "/" not in name for name in outside)
    # one such name among others may mean a vehicle or an exam
    if not has_metadata and (len(parts) > 1 or not parts.keys().isdisjoint((VALIDATION, "val", "valid"))):
        raise DataError(
            f"{folder} has folders of splits ({', '.join(parts)}) and images outside of them, {outside[0]} among"
            " them; move these into one, or list all images in a metadata.csv in the folder itself."
        )
    return {"train": names}


Columns = dict[str, tuple[list[Any], bool]]
"""Values of columns by name, and whether they are the paths of images."""


def read_beside(folder: Path, images: list[str], names: list[str]) -> Columns:
    """Returns images with the captions in the text files beside them, a line each."""
    root = os.path.abspath(folder)
    texts = {name.rpartition(".")[0]: name for end in reversed(BESIDE) for name in names if name.lower().endswith(end)}
    captions: list[list[str]] = []
    for stem in (name.rpartition(".")[0] for name in images):
        lines: list[str] = []
        if stem in texts:
            with naming_damage(str(folder / texts[stem])):
                lines = (folder / texts[stem]).read_text(encoding="utf-8-sig").split("\n")
        captions.append([line.strip() for line in lines if line.strip()])
    columns: Columns = {"image": ([os.path.join(root, name) for name in images], True)}
    return {**columns, "captions": (captions, False)} if any(captions) else columns


def read_metadata(folder: Path, names: list[str]) -> Columns:
    """Returns the rows of several metadata files, whose paths are relative to the folder of each."""
    own, columns = OwnFiles(str(folder)), list[str]()
    where: dict[str, Path] = {}
    all_rows: list[dict[str, Any]] = []
    for name in names:
        file = folder / name
        with naming_damage(str(file)):
            rows = READERS[file.suffix.lower()](file)
        keys = list(dict.fromkeys(key for row in rows for key in row))
        if rows and columns and set(keys) != set(columns):
            raise DataError(
                f"{file} has the columns {', '.join(keys)}, and {folder / names[0]} {', '.join(columns)}; give both the"
                " same ones."
            )
        columns = columns or keys
        if rows and not any(key.endswith(FILE_NAME) for key in keys):
            raise DataError(
                f"{file} has no column {FILE_NAME} among {', '.join(keys)}; begin it with the line file_name,caption."
            )
        for number, row in enumerate(rows):
            for key in (key for key in keys if key.endswith(FILE_NAME)):
                path = place_of(row.get(key), file, number, folder, own)
                if key == FILE_NAME and where.setdefault(path, file) != file:
                    raise DataError(f"{file} and {where[path]} both name {path}; leave it out of one of them.")
                row[key] = path
            all_rows.append(row)
    return {
        (key.removesuffix(FILE_NAME).rstrip("_") or "image") if key.endswith(FILE_NAME) else key: (
            [row.get(key) for row in all_rows],
            key.endswith(FILE_NAME),
        )
        for key in columns
    }


def place_of(value: Any, file: Path, number: int, folder: Path, own: OwnFiles) -> str:
    """Returns the path of the image that a row of metadata names."""
    if not isinstance(value, str) or not value:
        raise DataError(f"{file}, row {number}: {FILE_NAME} is {value!r}; it must be the name of an image file.")
    if "\\" in value and not (file.parent / value).exists():
        value = value.replace("\\", "/")  # as Windows writes paths
    return own.find(os.path.join(file.parent.relative_to(folder), value), f"{file}, row {number}")


def read_csv(file: Path) -> list[dict[str, Any]]:
    with open(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text, strict=True, skipinitialspace=True)
        rows: list[dict[str, Any]] = []
        for row in reader:
            if None in row:
                raise DataError(
                    f"{file}, line {reader.line_num} has more fields than columns; put a caption with a comma into"
                    " quotation marks."
                )
            rows.append({key: value or None for key, value in row.items()})
    for side in ("width", "height"):
        if all((row.get(side) or "").isdecimal() for row in rows):
            rows = [{**row, side: int(row[side])} for row in rows]
    return rows


def read_jsonl(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8-sig").split("\n") if line.strip()]


READERS = {".csv": read_csv, ".jsonl": read_jsonl, ".parquet": lambda file: pq.read_table(file).to_pylist()}


def how_to_caption(folder: Path) -> tuple[str, list[str]]:
    """Returns how to add captions to a folder without any, and two lines of such a `metadata.csv`."""
    names = sorted(name for name in visible_files(folder) if is_image(name) or is_metadata(name))
    metadata = next(filter(is_metadata, names), None)
    place = folder / (metadata or METADATA[0])
    image = next(filter(is_image, names), "beach.jpg")
    first, inside, rest = image.partition("/")
    if metadata is None and inside and first.lower() in SPLITS:
        place, image = folder / first / METADATA[0], rest
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([image, "A child runs into the sea."])
    example = [f"{FILE_NAME},caption", line.getvalue()]
    if metadata is not None:
        return f"give {place} a column caption (or name its column of captions with captions=COLUMN)", example
    return f"list them in {place} (or in text files beside the images, such as {Path(image).stem}.txt)", example

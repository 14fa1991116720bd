"""Names and files of splits, and rows set aside for validation.

```python
find_split("validation", ["train", "val"])  # "val"
```
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset

VALIDATION = "validation"
"""The split that is set aside where a dataset has none."""
MIN_ROWS = 4
"""Rows of which some can be set aside."""
OTHER_NAMES = {"validation": ("val", "valid", "dev"), "val": ("validation", "valid", "dev")}


def names_of_split(split: str) -> tuple[str, ...]:
    """Returns the names that a split may have in data, the requested one first."""
    return split, *OTHER_NAMES.get(split, ())


def find_split(split: str, available: Iterable[str]) -> str | None:
    """Returns the name under which a split is available, or None."""
    available = set(available)
    return next((name for name in names_of_split(split) if name in available), None)


def find_files(folder: Path, split: str, *patterns: str) -> list[Path]:
    """Returns the files of a split, by any of its names.

    Args:
        folder: folder of the files.
        split: name of the split.
        patterns: name of each file with `*` for the split, such as `captions_*.json`.

    Raises:
        DataError: there is no such folder or split, or one of its files is missing.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the one with {' and '.join(patterns)}.")
    for name in names_of_split(split):
        files = [folder / pattern.replace("*", name) for pattern in patterns]
        missing = [file.name for file in files if not file.exists()]
        if not missing:
            return files
        if len(missing) < len(files):
            raise DataError(
                f"{folder} has no {', '.join(missing)} beside the other files of {name}; add what is missing."
            )
    start, _, end = patterns[0].partition("*")
    known = sorted(file.name.removeprefix(start).removesuffix(end) for file in folder.glob(patterns[0]))
    raise DataError(
        f"{folder} has no split {split!r} ({' and '.join(patterns)}); there are {', '.join(known) or 'none'}."
    )


def set_aside(rows: "Dataset", name: str) -> tuple["Dataset", "Dataset"]:
    """Divides training rows into those to train on and those that choose the best model.

    Every tenth row is set aside, so that any range of rows is divided like all of them; every fifth of fewer than
    twenty rows, and every other of fewer than ten.

    Args:
        rows: at least four.
        name: name for messages.

    Raises:
        DataError: there are fewer.
    """
    if len(rows) < MIN_ROWS:
        raise DataError(
            f"{name} has no split {VALIDATION!r} and {len(rows)} rows for training, too few to set some aside; add "
            "some, or train without with data.validation_split=null."
        )
    every = 10 if len(rows) >= 20 else 5 if len(rows) >= 10 else 2
    chosen = range(every - 1, len(rows), every)
    return rows.select([row for row in range(len(rows)) if row % every != every - 1]), rows.select(chosen)

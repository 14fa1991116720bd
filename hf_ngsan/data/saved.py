"""The reader of `features:DIR`: folders that `hf-ngsan extract`, `convert` or `save_to_disk` of `datasets` wrote."""

import contextlib
import os
from pathlib import Path

from datasets import Dataset, DatasetDict, concatenate_datasets

from ..io.files import is_unchanged
from ..io.shards import read_records
from .contract import check_dataset, drop_empty_columns, widen_boxes, with_arrays
from .errors import DataError, MissingSplitError, reason_of
from .images.decoding import with_raster_images
from .images.sources import column_of_splits, is_saved, open_saved_files
from .prepared import cache_directory, fingerprint
from .splits import find_split


def load_saved(directory: str, split: str | None) -> Dataset:
    """Loads one split of a saved `DatasetDict`, or of a saved `Dataset` with a column `split`, or all rows.

    When a folder is first loaded, and after it has changed, its rows are checked against the contract, and files of
    `hf-ngsan extract` or `hf-ngsan convert` against their recorded checksums. If the cache cannot be written, every
    loading checks them.

    Args:
        directory: the folder given to `save_to_disk`.
        split: its name; `validation` and `val` mean the same. None for the rows of all splits.

    Returns:
        `datasets.Dataset`, memory-mapped from the folder.

    Raises:
        DataError: no such folder or split, a row that breaks the contract, or a file that has changed.
    """
    if not is_saved(Path(directory)):  # before the stamps of all its files are read
        raise DataError(
            f"{directory} is not a saved dataset; give a folder written by save_to_disk of the datasets library."
        )
    passed = cache_directory() / f"checked-{fingerprint('features', split, stamps_of(Path(directory)))}"
    is_checked = os.path.isfile(passed)  # False where the cache cannot be read
    if not is_checked:
        refuse_changed_shards(Path(directory))
    dataset = with_raster_images(choose_split(open_saved(Path(directory)), directory, split))
    name = directory if split is None else f"{directory}, split {split}"
    if not is_checked:
        dataset = check_dataset(dataset, name=name)
        with contextlib.suppress(OSError):
            passed.parent.mkdir(parents=True, exist_ok=True)
            passed.touch()
        return with_arrays(dataset)
    return with_arrays(widen_boxes(drop_empty_columns(dataset), name=name))


def refuse_changed_shards(directory: Path) -> None:
    """Raises a DataError for a file that has changed since its size and checksum were recorded."""
    for record in read_records(directory):
        file = directory / record.file
        if file.is_file() and not is_unchanged(file, record.stamp):
            raise DataError(
                f"{file} has changed since its features were written; write them again into another folder."
            )


def open_saved(directory: Path) -> Dataset | DatasetDict:
    try:
        return open_saved_files(directory)
    except DataError:
        raise
    except IndexError:  # datasets 5.2 raises it for a split without rows
        raise DataError(f"{directory} has a split without rows; save it again without that split.") from None
    except Exception as error:
        raise DataError(
            f"{directory} cannot be loaded as a saved dataset ({reason_of(error)}); save it again."
        ) from error


def choose_split(saved: Dataset | DatasetDict, directory: str, split: str | None) -> Dataset:
    if split is None:
        return concatenate_datasets(list(saved.values())) if isinstance(saved, DatasetDict) else saved
    if isinstance(saved, DatasetDict):
        name = find_split(split, saved)
        if name is None:
            raise MissingSplitError(f"{directory} has no split {split!r}; there are {', '.join(saved)}.")
        return saved[name]
    column = column_of_splits({"all": saved})
    if column is None:
        raise DataError(
            f"{directory} has no column 'split', so it has no {split!r}; save a DatasetDict with its splits, or add the"
            " column."
        )
    name = find_split(split, column)
    if name is None:
        raise MissingSplitError(f"{directory} has no split {split!r}; there are {', '.join(sorted(set(column)))}.")
    return saved.select([index for index, value in enumerate(column) if value == name])


def stamps_of(directory: Path) -> list:
    """Returns names, sizes and modification times of a folder's files: they change with its content."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return [str(directory.resolve())] + [
        [str(path.relative_to(directory)), path.stat().st_size, path.stat().st_mtime_ns] for path in files
    ]

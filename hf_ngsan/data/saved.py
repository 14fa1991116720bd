"""The reader of `features:DIR`: folders written by `hf-ngsan extract`, `convert` or `save_to_disk` of `datasets`; and
feature copies, extracted from randomly cropped, mirrored and recoloured images.
"""

import contextlib
import os
from collections.abc import Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from datasets import Dataset, concatenate_datasets

from ..io.files import is_unchanged
from ..io.shards import RECORDS, read_shard_records
from .contract import check_dataset, drop_empty_columns, widen_boxes, with_arrays, with_whole_arrays
from .errors import DataError
from .images import OwnFiles
from .images.files import MEDIA, with_own_media, with_raster_images
from .images.sources import is_saved, open_source, open_split
from .prepared import cache_directory, fingerprint, remove_earlier_versions
from .sampler import generator_of

COPIES = "copies"
CONTRACT_VERSION = 1
"""Version of the row checks; increase it for a new check, so that saved datasets are checked again."""


def load_saved(directory: str, split: str | None) -> Dataset:
    """Loads one split, or all rows (None), of a dataset written by `save_to_disk`, memory-mapped.

    The first time a folder is loaded, and after it has changed, its rows are checked against the contract, and files of
    `hf-ngsan extract` or `hf-ngsan convert` against their recorded checksums.
    """
    folder = Path(directory)
    if not is_saved(folder):  # checked before the stamps of all its files are read
        raise DataError(f"{directory} is not a saved dataset; give a folder written by save_to_disk of datasets.")
    passed = cache_directory() / f"checked-{CONTRACT_VERSION}-{fingerprint(split, stamps_of(folder))}"
    is_checked = os.path.isfile(passed)  # False if the cache cannot be read
    if not is_checked:
        refuse_changed_shards(folder)
    if split is None:
        name, numbers = directory, None
        dataset = concatenate_datasets(list(open_source(directory, None).values()))
    else:
        name = f"{directory}, split {split}"
        dataset, numbers = open_split(directory, split)
    dataset = with_raster_images(with_own_media(dataset if numbers is None else dataset.select(numbers), MEDIA))
    if is_checked:
        return with_arrays(widen_boxes(drop_empty_columns(dataset), name=name))
    dataset = check_dataset(dataset, name=name)
    with contextlib.suppress(OSError):
        passed.parent.mkdir(parents=True, exist_ok=True)
        remove_earlier_versions("checked", CONTRACT_VERSION)
        passed.touch()
    return with_arrays(dataset)


def refuse_changed_shards(directory: Path) -> None:
    """Raises a DataError for a file that differs from its recorded size and checksum, or is foreign."""
    own_files, where = OwnFiles(directory), str(directory)
    for place in (directory / RECORDS, *(directory / RECORDS).glob("*.json")):
        own_files.find(os.path.abspath(place), where)
    for record in read_shard_records(directory):
        file = Path(own_files.find(record.file, where))
        if file.is_file() and not is_unchanged(file, record.stamp):
            raise DataError(f"{file} has changed since its features were written; write them into another folder.")


def stamps_of(directory: Path) -> list:
    """Returns names, sizes and modification times of the files in a folder; these change with its contents."""
    files = [(path, path.stat()) for path in sorted(directory.rglob("*")) if path.is_file()]
    stamps = [[str(path.relative_to(directory)), state.st_size, state.st_mtime_ns] for path, state in files]
    return [str(directory.resolve()), *stamps]


def copy_folder(features: str | os.PathLike, number: int) -> Path:
    return Path(features) / COPIES / str(number)


class FeatureCopies:
    """Chooses the features of a row in each epoch: the original ones or those of a copy written by `hf-ngsan extract
    --copies N`. The choice depends only on the seed, the epoch and the row's `image_id`."""

    def __init__(self, features: str | os.PathLike, split: str | None, seed: int = 0) -> None:
        own_files = OwnFiles(features)
        places = (own_files.find(os.path.abspath(copy_folder(features, number)), str(features)) for number in count(1))
        folders = list(takewhile(Path.is_dir, map(Path, places)))
        if not folders:
            raise DataError(f"{features} has no feature copies; make them with hf-ngsan extract --copies.")
        self.folders, self.seed = folders, seed
        self.copies = [with_whole_arrays(load_saved(str(folder), split)) for folder in folders]
        self.places = [{image_id: place for place, image_id in enumerate(rows["image_id"])} for rows in self.copies]

    def __call__(self, row: Mapping[str, Any], epoch: int) -> dict[str, Any]:
        chosen = int(generator_of(self.seed, epoch, row["image_id"], COPIES).integers(len(self.copies) + 1))
        if chosen == len(self.copies):
            return dict(row)
        place = self.places[chosen].get(row["image_id"])
        if place is None:
            raise DataError(f"{self.folders[chosen]} has no image {row['image_id']}; repeat hf-ngsan extract --copies.")
        copy = self.copies[chosen][place]
        return {**row, **{name: copy[name] for name in ("visual_features", "visual_boxes") if name in copy}}

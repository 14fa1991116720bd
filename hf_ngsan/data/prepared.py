"""Prepared datasets: written once to the cache, then memory-mapped; the key includes everything they depend on.

Each reader has a version, which is part of the key: increase it when the reader makes other rows from the same files.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, Features
from datasets.arrow_writer import ArrowWriter
from tqdm.auto import tqdm

from ..io.files import sha256
from ..io.folders import remove, turn_to_write, write_folder_atomically
from .contract import with_arrays
from .errors import DataError


def fingerprint(*parts: Any) -> str:
    """Returns a checksum of JSON values and of the contents of files (`Path`)."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(json.dumps(sha256(part) if isinstance(part, Path) else part).encode() + b"\0")
    return digest.hexdigest()[:32]


@dataclass
class Rows:
    """Rows to write, their number if known, their `datasets.Features`, and notes for the user."""

    features: Features
    rows: Iterable[dict]
    number: int | None = None
    notes: Sequence[str] = ()


def cache_directory() -> Path:
    """Returns the folder of prepared data, in the cache of `datasets` (`HF_DATASETS_CACHE`, `HF_HOME`)."""
    return Path(datasets.config.HF_DATASETS_CACHE) / "hf_ngsan"


def prepare(kind: str, version: int, split: str, parts: Sequence[Any], make: Callable[[], Rows]) -> Dataset:
    """Loads a prepared dataset, memory-mapped; writes it first, atomically, if needed, while other processes wait.

    Args:
        kind: name of the reader.
        version: version of the reader; datasets of earlier versions are removed when a new one is written.
        split: name of the split.
        parts: everything else that the rows depend on: JSON values, and files as `Path`.
        make: returns the rows; their notes are logged as warnings whenever the dataset is loaded.
    """
    directory = cache_directory() / f"{kind}-{version}-{fingerprint(split, *parts)}"
    with turn_to_write(directory) as is_missing:
        if is_missing:
            remove_earlier_versions(kind, version)
            content, title = make(), f"preparing {kind} {split}"
            write_folder_atomically(directory, lambda folder: write_rows(folder, content, title), manifest=False)
    for note in json.loads((directory / "notes.json").read_text(encoding="utf-8")):
        warnings.warn(note, stacklevel=4)
    rows = Dataset.from_file(str(directory / "data.arrow"), split=split)
    if not len(rows):
        raise DataError(f"{kind}, split {split}, has no complete rows; check its files.")
    return with_arrays(rows)


def remove_earlier_versions(kind: str, version: int) -> None:
    for place in cache_directory().glob(f"{kind}-*"):
        name = re.fullmatch(rf"{kind}-(?:(\d+)-)?[0-9a-f]{{32}}(\.lock)?", place.name)
        if name and int(name[1] or 0) < version:
            remove(place)


def write_rows(folder: Path, content: Rows, description: str) -> None:
    with ArrowWriter(path=str(folder / "data.arrow"), features=content.features) as writer:
        for row in tqdm(content.rows, total=content.number, desc=description, delay=2, leave=False, disable=None):
            writer.write(row)
        writer.finalize()
    (folder / "notes.json").write_text(json.dumps(list(content.notes)), encoding="utf-8")

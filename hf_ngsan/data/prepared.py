"""Prepared datasets: written once to the cache, then memory-mapped, under a key of everything they depend on."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, Features
from datasets.arrow_writer import ArrowWriter
from tqdm.auto import tqdm

from ..io.folders import turn_to_write, write_folder_atomically
from .contract import with_arrays
from .errors import DataError


def fingerprint(*parts: Any) -> str:
    """Returns a key of JSON values, of the content of files (`Path`), and of the code that prepares data."""
    code = sorted(Path(__file__).parent.rglob("*.py"))
    digest = hashlib.sha256(b"".join(map(file_digest, code)))
    for part in parts:
        digest.update(file_digest(part) if isinstance(part, Path) else json.dumps(part).encode() + b"\0")
    return digest.hexdigest()[:32]


def file_digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


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


def prepare(kind: str, key: str, split: str, make: Callable[[], Rows]) -> Dataset:
    """Loads a prepared dataset, memory-mapped, or writes it first, whole or not at all; other processes wait meanwhile.

    `key` is the `fingerprint` of all that the data depend on. Notes of the rows become warnings at every loading.
    """
    directory = cache_directory() / f"{kind}-{key}"
    with turn_to_write(directory) as is_missing:
        if is_missing:
            content, title = make(), f"preparing {kind} {split}"
            write_folder_atomically(directory, lambda folder: write_rows(folder, content, title), manifest=False)
    for note in json.loads((directory / "notes.json").read_text(encoding="utf-8")):
        warnings.warn(note, stacklevel=4)
    rows = Dataset.from_file(str(directory / "data.arrow"), split=split)
    if not len(rows):
        raise DataError(f"There are no rows of {kind}, split {split}, that have all they need; check its files.")
    return with_arrays(rows)


def write_rows(folder: Path, content: Rows, description: str) -> None:
    with ArrowWriter(path=str(folder / "data.arrow"), features=content.features) as writer:
        for row in tqdm(content.rows, total=content.number, desc=description, delay=2, leave=False, disable=None):
            writer.write(row)
        writer.finalize()
    (folder / "notes.json").write_text(json.dumps(list(content.notes)), encoding="utf-8")

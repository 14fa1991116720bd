"""Prepared data sets: written once, memory-mapped ever after, keyed by all that they are made from."""

import hashlib
import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets
from datasets import Dataset, Features
from datasets.arrow_writer import ArrowWriter
from filelock import FileLock
from tqdm.auto import tqdm

from ..files import write_folder_atomically
from .contract import with_arrays
from .errors import DataError


def fingerprint(*parts):
    """A key of JSON values and of files (`Path`: their content), and of the code that prepares data.

    Raises:
        DataError: a file cannot be read.
    """
    digest = hashlib.sha256(_code())
    for part in parts:
        digest.update(_file_digest(part) if isinstance(part, Path) else json.dumps(part).encode() + b"\0")
    return digest.hexdigest()[:32]


@dataclass
class Rows:
    """Rows to be written, how many they are, their `datasets.Features`, and notes on them for the user."""

    features: Features
    rows: Iterable[dict]
    number: int
    notes: Sequence[str] = ()


def cache_directory():
    """Where prepared data lie: in the cache of `datasets`, which `HF_DATASETS_CACHE` and `HF_HOME` move."""
    return Path(datasets.config.HF_DATASETS_CACHE) / "hf_ngsan"


def prepare(kind, key, split, make):
    """Load a prepared data set, or write it first.

    When several processes ask at once, one writes and the others wait; a process that is killed leaves nothing that
    could be taken for a data set.

    Args:
        kind: what the data are, for the folder's name.
        key: `fingerprint` of all that the data depend on.
        split: the name that the data set gets.
        make: called only if the data must be written; returns `Rows`, whose notes become warnings at every loading.

    Returns:
        `datasets.Dataset`, memory-mapped, that reads features and boxes as numpy arrays.
    """
    directory = cache_directory() / f"{kind}-{key}"
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{directory}.lock"):
            if not directory.exists():
                content = make()
                write_folder_atomically(
                    directory, lambda folder: _write(folder, content, f"preparing {kind} {split}"), manifest=False
                )
    for note in json.loads((directory / "notes.json").read_text(encoding="utf-8")):
        warnings.warn(note, stacklevel=4)
    return with_arrays(Dataset.from_file(str(directory / "data.arrow"), split=split))


def _write(folder, content, description):
    with ArrowWriter(path=str(folder / "data.arrow"), features=content.features) as writer:
        for row in tqdm(content.rows, total=content.number, desc=description, delay=2, leave=False, disable=None):
            writer.write(row)
        writer.finalize()
    (folder / "notes.json").write_text(json.dumps(list(content.notes)), encoding="utf-8")


def _file_digest(path):
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


def _code():
    """The digests of the source files that read data: other code may prepare other data."""
    here = Path(__file__).parent
    files = [*sorted(here.rglob("*.py")), here.parent / "boxes.py", here.parent / "coco_files.py"]
    return b"".join(map(_file_digest, files))

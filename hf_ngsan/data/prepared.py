"""Prepared datasets: written once to the cache, then memory-mapped, under a key of everything they depend on.

```python
key = fingerprint("coco-layout", split, instances, captions)  # of values, files and this package's code
prepare("coco-layout", key, split, lambda: read_layout(instances, captions, split))
```
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, Features
from datasets.arrow_writer import ArrowWriter
from tqdm.auto import tqdm

from ..io.files import is_stream
from ..io.folders import turn_to_write, write_folder_atomically
from ..io.messages import FULL_DISK
from .contract import with_arrays
from .errors import DataError


def fingerprint(*parts: Any) -> str:
    """Returns a key of JSON values, of the content of files (`Path`), and of the code that prepares data.

    Raises:
        DataError: a file cannot be read.
    """
    digest = hashlib.sha256(code_digest())
    for part in parts:
        digest.update(file_digest(part) if isinstance(part, Path) else json.dumps(part).encode() + b"\0")
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


def prepare(kind: str, key: str, split: str, make: Callable[[], Rows]) -> Dataset:
    """Loads a prepared dataset, or writes it first.

    If several processes ask at once, one writes and the others wait. A process that is killed leaves no partial
    dataset.

    Args:
        kind: kind of the data, for the name of the folder.
        key: `fingerprint` of everything that the data depend on.
        split: split of the dataset.
        make: makes the `Rows` if they are not prepared yet; their notes become warnings at every loading.

    Returns:
        `datasets.Dataset`, memory-mapped, that reads features and boxes as numpy arrays.

    Raises:
        DataError: the cache cannot be written.
    """
    directory = cache_directory() / f"{kind}-{key}"
    with naming_the_cache(f"{kind} {split}"):
        with turn_to_write(directory) as is_missing:
            if is_missing:
                content = make()
                write_folder_atomically(
                    directory,
                    lambda folder: write_rows(folder, content, f"preparing {kind} {split}"),
                    manifest=False,
                )
        notes = json.loads((directory / "notes.json").read_text(encoding="utf-8"))
    for note in notes:
        warnings.warn(note, stacklevel=4)
    return with_arrays(Dataset.from_file(str(directory / "data.arrow"), split=split))


def write_rows(folder: Path, content: Rows, description: str) -> None:
    with ArrowWriter(path=str(folder / "data.arrow"), features=content.features) as writer:
        for row in tqdm(content.rows, total=content.number, desc=description, delay=2, leave=False, disable=None):
            writer.write(row)
        writer.finalize()
    (folder / "notes.json").write_text(json.dumps(list(content.notes)), encoding="utf-8")


@contextmanager
def naming_the_cache(name: str) -> Iterator[None]:
    """Turns an error of writing the cache inside the `with` block into a DataError that names dataset and cache."""
    try:
        yield
    except Exception as error:
        reason = cache_problem(error)
        if reason is None:
            raise
        raise DataError(
            f"{name} must be prepared in the cache {datasets.config.HF_DATASETS_CACHE}, which cannot be written"
            f" ({reason}); set HF_DATASETS_CACHE to a folder that can."
        ) from error


def cache_problem(error: BaseException | None) -> str | None:
    """Returns why the cache cannot be written, if an error or one of its causes is about that; else None."""
    cache = os.path.abspath(datasets.config.HF_DATASETS_CACHE)
    while error is not None:
        if isinstance(error, OSError):
            file = "" if error.filename is None else os.path.abspath(os.fspath(error.filename))
            if error.errno in FULL_DISK or (file and os.path.commonpath([file, cache]) in (file, cache)):
                return error.strerror or str(error)
        error = error.__cause__
    return None


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Opens a file to be read; raises a DataError if it cannot be read, also inside the `with` block."""
    if is_stream(path):  # it may never end
        raise DataError(f"{path} cannot be read: it is a device or a pipe.")
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


def file_digest(path: Path) -> bytes:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").digest()


def code_digest() -> bytes:
    """Returns the digests of the source files that read data, since other code may prepare other data."""
    here = Path(__file__).parent
    return b"".join(map(file_digest, sorted(here.rglob("*.py"))))

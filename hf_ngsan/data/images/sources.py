"""Opens a split of a dataset in a folder, in a file or on the Hub.

```python
dataset, numbers = open_split("nlphuji/flickr30k", "test")  # numbers: rows of the split, None for all
```
"""

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import datasets
from datasets import ClassLabel, Dataset, DatasetDict
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from ...ground.files import is_stream
from ...store.shards import without_progress_bars
from ..errors import DataError, MissingSplitError, reason_of
from ..formats.webdataset import refuse_lost_members
from ..prepared import naming_the_cache
from ..splits import find_split

HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
HUB_SECONDS = 10
"""Timeout of the Hub; the datasets library itself retries for minutes."""
PATTERN_CHARACTERS = re.compile(r"[*?\[\]]")
SAVED_DATASET_FILES = ("dataset_dict.json", "state.json")
SPLIT_IN_FILE_NAME = re.compile(r"(?<![a-z])(train|validation|valid|val|dev|test)(?![a-z])", re.IGNORECASE)


def open_split(source: str, split: str, config: str | None = None) -> tuple[Dataset, list[int] | None]:
    """Opens one split of a dataset.

    Args:
        source: a folder that `load_from_disk` or `load_dataset` reads, a Parquet file, or a name on the Hub.
        split: a key of a `DatasetDict`; for a dataset in one part, a value of its column `split` or, without this
            column, the name of the part, by default `train`.
        config: which of several configurations, for `load_dataset`.

    Returns:
        The dataset, memory-mapped, and the numbers of its rows in the split; None for all.

    Raises:
        DataError: there is no such dataset or split, or it cannot be read.
    """
    parts = open_source(source, config)
    column = column_of_splits(parts)
    available = list(dict.fromkeys(parts if column is None else column))
    name = find_split(split, available)
    if name is None:
        only = (
            "; a dataset in one part takes the names of its splits from a column 'split' or from files named as"
            " validation-*.parquet"
        )
        raise MissingSplitError(
            f"{source} has no split {split!r}; there are {', '.join(available)}{only if len(available) == 1 else ''}."
        )
    if column is None:
        return parts[name], None
    return next(iter(parts.values())), [number for number, value in enumerate(column) if value == name]


def split_names(source: str) -> list[str]:
    """Returns the names of the splits that [`open_split`] finds."""
    parts = open_source(source, None)
    return list(dict.fromkeys(column_of_splits(parts) or parts))


def column_of_splits(parts: Mapping[str, Dataset]) -> list[str] | None:
    """Returns the column `split` of a dataset in one part; None without one."""
    [dataset, *others] = parts.values()
    if others or "split" not in dataset.column_names:
        return None
    feature, values = dataset.features["split"], dataset.with_format(None)["split"][:]
    if isinstance(feature, ClassLabel):
        values = [value if value is None else feature.int2str(value) for value in values]
    return list(map(str, values))


def is_saved(folder: Path) -> bool:
    """Returns whether `save_to_disk` of the datasets library wrote a folder."""
    return any((folder / name).is_file() for name in SAVED_DATASET_FILES)


def open_source(source: str, config: str | None, streaming: bool = False) -> dict[str, Any]:
    """Opens all splits of a dataset by name, as `Dataset` or, if streamed, as `IterableDataset`."""
    path = Path(source)
    place, files = str(path.absolute()), None
    if is_saved(path) and not streaming:
        with naming_source(source):
            found: Any = datasets.load_from_disk(source)
        return dict(found) if isinstance(found, DatasetDict) else {str(found.split or "train"): found}
    if path.is_dir():
        check_folder_of_data(path)
    elif path.exists():
        check_file_of_data(path, streaming)
        named = SPLIT_IN_FILE_NAME.findall(path.stem)
        files = {named[-1].lower() if named else "train": place}
        place = "parquet" if path.suffix.lower() == ".parquet" else "webdataset"
    elif HUB_NAME.fullmatch(source):
        check_hub(source)
        place = source
    else:
        raise DataError(f"{source} does not exist; give a folder, a file or the name of a dataset on the Hub.")
    with naming_source(source):
        found = datasets.load_dataset(place, name=config, data_files=files, streaming=streaming)  # nosec B615  # the user's choice
    return {str(name): part for name, part in found.items()}


def refuse_patterns(source: str) -> None:
    if PATTERN_CHARACTERS.search(str(Path(source).absolute())):
        raise DataError(
            f"{source} has a path with one of * ? [ ], which the datasets library takes for patterns; rename it."
        )


def check_folder_of_data(path: Path) -> None:
    """Raises a DataError for a folder that the datasets library (5.2) would misread.

    It would search a whole home folder for data, and silently drop the rest of a damaged tar file.
    """
    refuse_patterns(str(path))
    if Path(os.path.expanduser("~")).resolve().is_relative_to(path.resolve()):
        raise DataError(f"{path} is or holds your home folder, all of which would be searched; name a folder of data.")
    for file in sorted(path.rglob("*.*")):
        if ".tar" in map(str.lower, file.suffixes) and file.is_file():
            refuse_lost_members(file)


def check_file_of_data(path: Path, streaming: bool) -> None:
    """Raises a DataError for a file of another kind, or one that the datasets library would read only in part."""
    refuse_patterns(str(path))
    if is_stream(path):
        raise DataError(f"{path} is a device or a pipe, which cannot be read more than once; give a file.")
    if path.suffix.lower() != ".parquet":
        if not streaming:
            raise DataError(f"{path} is not a Parquet file; give a .parquet file, or the folder that holds the data.")
        refuse_lost_members(path)


def check_hub(name: str) -> None:
    """Raises a DataError if the Hub cannot be reached, without the long retries of the datasets library."""
    if constants.HF_HUB_OFFLINE or datasets.config.HF_HUB_OFFLINE:
        return
    try:
        HfApi().dataset_info(name, timeout=HUB_SECONDS)
    except (GatedRepoError, RepositoryNotFoundError):
        raise DataError(
            f"{name} is neither a folder or file here nor a dataset on the Hub that you have access to; check the name,"
            " or log in with hf auth login."
        ) from None
    except Exception as error:  # the HTTP library has many for a failed connection
        raise DataError(
            f"{name} is neither a folder or file here, nor can the Hub be asked for it ({reason_of(error)}); check the"
            " path or the connection, or set HF_HUB_OFFLINE=1 to read it from the cache."
        ) from None


@contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Turns errors of the datasets library inside the `with` block into a DataError that names the source."""
    try:
        with quiet_datasets(), naming_the_cache(source):
            yield
    except DataError:
        raise
    except Exception as error:
        root: BaseException = error
        while root.__cause__ is not None:
            root = root.__cause__
        if os.path.exists(source):
            fault = f"cannot be read as a dataset ({reason_of(root)}); check its files, or get them again"
        else:
            fault = (
                f"is neither a folder or file here, nor can it be read from the Hub or its cache ({reason_of(root)});"
                " check the path or the connection"
            )
        raise DataError(f"{source} {fault}.") from error


@contextmanager
def quiet_datasets() -> Iterator[None]:
    """Silences the log of the datasets library inside the `with` block, and shows its bars only in a terminal."""
    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(logging.CRITICAL)
    try:
        with nullcontext() if sys.stderr.isatty() else without_progress_bars():
            yield
    finally:
        datasets.logging.set_verbosity(verbosity)

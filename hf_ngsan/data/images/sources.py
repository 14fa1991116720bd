"""Opens a split of a dataset in a folder, in a file or on the Hub.

```python
dataset, numbers = open_split("nlphuji/flickr30k", "test")  # numbers: rows of the split, None for all
```
"""

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Any

import datasets
import yaml
from datasets import ClassLabel, Dataset, DatasetDict
from huggingface_hub import HfApi, constants, metadata_load

from ...io.messages import chain
from ...io.shards import without_progress_bars
from ..errors import DataError, MissingSplitError, reason_of
from ..image_files import visible_files
from ..readers import find_split
from .files import OwnFiles, with_own_files
from .folder import SPLITS, holds_photographs, read_folder
from .tar_files import TAR_SUFFIXES, open_tar_files

HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
HUB_SECONDS = 10
"""Timeout of the Hub; the datasets library itself retries for minutes."""
PATTERN_CHARACTERS = re.compile(r"[*?\[\]]")
SAVED_DATASET_FILES = ("dataset_dict.json", "state.json")
CSV_OPTIONS = {"keep_default_na": False, "na_values": [""]}
"""Pandas would take captions such as None and NA for missing ones."""
WEBDATASET = "webdataset"
"""The name of the datasets library for tar files."""
TABLES = (".parquet", ".arrow", ".tar", ".zip", ".jsonl", ".csv")
"""Suffixes of files whose names say their splits; of a folder, those of the first suffix that it has are read."""
SPLIT_IN_FILE_NAME = re.compile(
    r"(?<![a-z])(train|training|validation|valid|val|dev|test|testing|eval|evaluation)(?![a-z])", re.IGNORECASE
)
SHARD = re.compile(r"data/(\w+)-\d{5}-of-\d{5}\b.*")
OTHER_WORDS = {"training": "train", "testing": "test", "eval": "test", "evaluation": "test"}
CARDS = ("README.md", ".huggingface.yaml")


def open_split(source: str, split: str, config: str | None = None) -> tuple[Dataset, list[int] | None]:
    """Opens one split of a dataset.

    Args:
        source: a folder that `load_from_disk` or `load_dataset` reads, a Parquet or tar file, or a name on the Hub.
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
            "; a dataset in one part takes the names of its splits from a column 'split', from files named as"
            " validation-*.parquet or, of photographs, from folders directly below it, train and validation"
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
        saved = open_saved(path)
        return dict(saved) if isinstance(saved, DatasetDict) else {str(saved.split or "train"): saved}
    if is_folder_of_photographs(source, config):
        return read_folder(path)
    if path.is_dir():
        refuse_patterns(str(path))
        files = None if card_configs(path) or config else files_of_splits(path)
    elif path.exists():
        refuse_patterns(source)
        if not path.name.lower().endswith((".parquet", *TAR_SUFFIXES)):
            raise DataError(f"{path} is no Parquet or tar file; give one, or the folder that holds the data.")
        files = {split_of_file(path.name) or "train": [place]}
        place = "parquet" if path.suffix.lower() == ".parquet" else WEBDATASET
    elif HUB_NAME.fullmatch(source):
        check_hub(source)
        place = source
    else:
        raise DataError(f"{source} does not exist; give a folder, a file or the name of a dataset on the Hub.")
    with naming_source(source):
        builder = datasets.load_dataset_builder(place, name=config, data_files=files)  # nosec B615  # the user's choice
        if builder.info.builder_name == "csv":
            builder = datasets.load_dataset_builder(place, name=config, data_files=files, **CSV_OPTIONS)  # nosec B615
        if builder.info.builder_name == WEBDATASET:
            return open_tar_files(builder.config.data_files, streaming)
        if not streaming:
            builder.download_and_prepare()
        parts = builder.as_streaming_dataset() if streaming else builder.as_dataset()
    return {str(name): part for name, part in parts.items()}


def is_folder_of_photographs(source: str, config: str | None = None) -> bool:
    """Returns whether a source is a folder that [`read_folder`] reads: not saved, and without configurations."""
    path = Path(source)
    if not path.is_dir() or is_saved(path):
        return False
    return not card_configs(path) and config is None and holds_photographs(path)


def card_configs(folder: Path) -> list[Any]:
    """Returns the configurations, with their files by split, that the card of a dataset declares.

    Raises:
        DataError: they name files that are not the dataset's own.
    """
    configs: list[Any] = []
    with naming_source(str(folder)):
        for file in (folder / name for name in CARDS if (folder / name).is_file()):
            content = metadata_load(file) if file.suffix == ".md" else yaml.safe_load(file.read_text(encoding="utf-8"))
            configs += (content or {}).get("configs") or []
    check_configs(configs, str(folder))
    return configs


def check_configs(configs: Any, source: str) -> None:
    """Raises a DataError if configurations of a card name a URL or a file outside of the dataset."""
    own = OwnFiles(source)
    for config in configs if isinstance(configs, list) else []:
        for name in strings_in([config.get("data_dir"), config.get("data_files")] if isinstance(config, dict) else []):
            own.find(name, f"{source}, the configurations of its card")


def strings_in(value: Any) -> Iterator[str]:
    """Yields the strings in nested lists and dictionaries."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings_in(part)


def files_of_splits(folder: Path) -> dict[str, list[str]] | None:
    """Returns the files of tables or archives by split, from folders and file names; None without such files.

    Raises:
        DataError: some files have a split in their names and others have none, or a name has a pattern.
    """
    names = sorted(visible_files(folder))
    of_suffix = ([name for name in names if suffix in suffixes_of(name)] for suffix in TABLES)
    parts: dict[str, list[str]] = {}
    for name in next(filter(None, of_suffix), []):
        refuse_patterns(name)
        parts.setdefault(split_of_file(name), []).append(name)
    if len(parts) > 1 and "" in parts:
        raise DataError(
            f"{folder} has files of splits ({', '.join(filter(None, parts))}) and files whose names have none,"
            f" {parts[''][0]} among them; name these as train-1{Path(parts[''][0]).suffix}, or move them away."
        )
    return {split or "train": [str(folder.absolute() / name) for name in files] for split, files in parts.items()}


def suffixes_of(name: str) -> list[str]:
    return PurePosixPath(name.lower().replace(".tgz", ".tar.gz")).suffixes


def split_of_file(name: str) -> str:
    """Returns the split of a table or archive, such as `train-00000-of-00001.parquet` or `test/1.tar`; "" without one.

    Photographs have no splits in their names: people name them after what they show.
    """
    folders = [part.lower() for part in PurePosixPath(name).parts[:-1] if part.lower() in SPLITS]
    words = folders or [word.lower() for word in SPLIT_IN_FILE_NAME.findall(PurePosixPath(name).stem)]
    shard = SHARD.fullmatch(name)
    return OTHER_WORDS.get(words[-1], words[-1]) if words else shard[1] if shard else ""


def open_saved(folder: Path) -> Dataset | DatasetDict:
    """Loads what `save_to_disk` wrote.

    Raises:
        DataError: it names files that are not its own, as shards or as images, or cannot be loaded.
    """
    own = OwnFiles(str(folder))
    with naming_source(str(folder)):
        for file in (*folder.glob("dataset_dict.json"), *folder.glob("state.json"), *folder.glob("*/state.json")):
            content = json.loads(file.read_text(encoding="utf-8"))
            splits, shards = content.get("splits") or [], content.get("_data_files") or []
            for name in (*splits, *(shard["filename"] for shard in shards)):
                own.find(os.path.join(file.parent.relative_to(folder), name), str(file))
        saved = datasets.load_from_disk(str(folder))
    parts = saved if isinstance(saved, DatasetDict) else DatasetDict({"": saved})
    for split, part in parts.items():
        for column in [name for name, feature in part.features.items() if isinstance(feature, datasets.Image)]:
            part = with_own_files(part, column, str(folder), f"{folder}{split and f', split {split}'}")
        parts[split] = part
    return parts if isinstance(saved, DatasetDict) else parts[""]


def refuse_patterns(source: str) -> None:
    if PATTERN_CHARACTERS.search(str(Path(source).absolute())):
        raise DataError(
            f"{source} has a path with one of * ? [ ], which the datasets library takes for patterns; rename it."
        )


def check_hub(name: str) -> None:
    """Raises a DataError if the Hub cannot be reached, without the long retries of the datasets library."""
    if constants.HF_HUB_OFFLINE or datasets.config.HF_HUB_OFFLINE:
        return
    try:
        info = HfApi().dataset_info(name, timeout=HUB_SECONDS)
    except Exception as error:  # the HTTP library has many for a failed connection
        raise DataError(
            f"{name} is neither a folder or file here nor a dataset on the Hub that you have access to"
            f" ({reason_of(error)[:200]}); check the name or the connection, log in with hf auth login, or set"
            " HF_HUB_OFFLINE=1 to read it from the cache."
        ) from None
    check_configs(info.card_data.get("configs") if info.card_data else None, name)


@contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Turns errors of the datasets library inside the `with` block into a DataError that names the source.

    Its log is silenced meanwhile, and its bars are shown only in a terminal.
    """
    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(logging.CRITICAL)
    try:
        with nullcontext() if sys.stderr.isatty() else without_progress_bars():
            yield
    except Exception as error:
        errors = list(chain(error))
        for cause in errors:
            if isinstance(cause, DataError):
                raise cause from None
        raise DataError(
            f"{source} cannot be read as a dataset ({reason_of(errors[-1])}); check its files, its name or the"
            " connection."
        ) from error
    finally:
        datasets.logging.set_verbosity(verbosity)

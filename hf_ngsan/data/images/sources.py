"""Opens a split of a dataset: a folder of photographs, of tables or archives, a file, or a dataset on the Hub."""

import csv
import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Any

import datasets
import pyarrow.parquet as pq
import yaml
from datasets import ClassLabel, Dataset, DatasetDict
from huggingface_hub import HfApi, constants, metadata_load

from ...io.messages import chain
from ...io.shards import without_progress_bars
from ..errors import DataError, MissingSplitError, naming_damage, reason_of
from ..readers import OTHER_NAMES, VALIDATION, find_split
from . import SUFFIXES, VIDEO_SUFFIXES, OwnFiles, has_image_suffix, visible_files
from .files import with_own_files, with_own_media
from .rows import CAPTION_NAMES, warn
from .tar_files import TAR_SUFFIXES, open_tar_files

HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
HUB_SECONDS = 10  # timeout of the Hub; the datasets library itself retries for minutes
PATTERN_CHARACTERS = re.compile(r"[*?\[\]]")
CSV_OPTIONS = {"keep_default_na": False, "na_values": [""]}  # Pandas would read captions such as NA as missing
TABLES = (".parquet", ".arrow", ".tar", ".zip", ".jsonl", ".csv")  # by priority; file names determine the splits
SPLIT_FOLDERS = {"train", "test", VALIDATION, *OTHER_NAMES}  # names (case-insensitive) of folders that are splits
SPLIT_IN_FILE_NAME = re.compile(
    r"(?<![a-z])(train|training|validation|valid|val|dev|test|testing|eval|evaluation)(?![a-z])", re.IGNORECASE
)
SHARD = re.compile(r"data/(\w+)-\d{5}-of-\d{5}\b.*")
OTHER_WORDS = {"training": "train", "testing": "test", "eval": "test", "evaluation": "test"}
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # metadata of images in the folder and below
BESIDE = (".txt", ".caption")  # suffixes of a file with the captions of an image of the same name, one per line
SAVED = ("dataset_dict.json", "dataset_info.json", "state.json")  # written by `save_to_disk`
FILE_NAME = "file_name"  # metadata column with the path of an image


def open_split(
    source: str, split: str, config: str | None = None, links: bool = False
) -> tuple[Dataset, list[int] | None]:
    """Opens one split of a dataset, memory-mapped, and the numbers of its rows (None for all rows): a dataset in one
    part may have a column `split`."""
    return choose_split(open_source(source, config, links=links), split, source)


def choose_split(parts: Mapping[str, Dataset], split: str, source: str) -> tuple[Dataset, list[int] | None]:
    column = column_of_splits(parts, source)
    name = name_of_split(split, parts if column is None else column, source)
    if column is None:
        return parts[name], None
    if others := Counter(column).keys() - {"train", VALIDATION, *OTHER_NAMES, "test", name}:
        listed = ", ".join(f"{other!r:.60} ({column.count(other)} rows)" for other in sorted(others))
        warn(f"{source}: training does not use the splits {listed}.")
    return next(iter(parts.values())), [number for number, value in enumerate(column) if value == name]


def name_of_split(split: str, available: Iterable[str], source: str) -> str:
    """Returns the name under which a split is available; raises a MissingSplitError if there is none."""
    known = list(dict.fromkeys(available))
    name = find_split(split, known)
    if name is None:
        ways = "Splits are folders such as validation, files such as validation-0.parquet, or a column 'split'."
        raise MissingSplitError(f"{source} has no split {split!r}; available: {', '.join(known)}. {ways}")
    return name


def column_of_splits(parts: Mapping[str, Dataset], source: str) -> list[str] | None:
    """Returns the column with the split of each row, in normalized spelling, or None."""
    [dataset, *others] = parts.values()
    if others or "split" not in dataset.column_names:
        return None
    feature, values = dataset.features["split"], dataset.with_format(None)["split"][:]
    if isinstance(feature, ClassLabel):
        values = [value if value is None else feature.int2str(value) for value in values]
    names = ["" if value is None else str(value).strip() for value in values]
    names = [name.lower() if name.lower() in SPLIT_FOLDERS else name for name in names]
    if "" in names:
        which = f"{names.count('')} of {len(names)} rows, row {names.index('')} first,"
        raise DataError(f"{source}: {which} have no split; write train, {VALIDATION} or test into the column 'split'.")
    return one_validation(names)


def one_validation(names: list[str]) -> list[str]:
    """Returns names of splits, with a single name for the validation split."""
    has_several = len({VALIDATION, *OTHER_NAMES}.intersection(names)) > 1
    return [VALIDATION if has_several and name in OTHER_NAMES else name for name in names]


def open_source(source: str, config: str | None, streaming: bool = False, links: bool = False) -> dict[str, Any]:
    """Opens all splits of a dataset by name, as `Dataset` or `IterableDataset`; see [`load_image_dataset`]."""
    path, own_files = Path(source), OwnFiles(source)
    place, files = str(path.absolute()), None
    if is_saved(path) and not streaming:
        saved = open_saved(path)
        return dict(saved) if isinstance(saved, DatasetDict) else {str(saved.split or "train"): saved}
    if is_folder_of_photographs(source, config):
        return read_folder(path, links=links)
    if path.is_dir():
        if not any(visible_files(path)):
            raise DataError(f"{path} is empty; give a folder with photographs, tables or archives.")
        files = None if card_configs(path) or config else files_of_splits(path)
    elif path.exists():
        if not path.name.lower().endswith((".parquet", *TAR_SUFFIXES)):
            raise DataError(f"{path} is not a Parquet or tar file; give one, or the folder of the data.")
        files = {split_of_file(path.name) or "train": [place]}
        place = "parquet" if path.suffix.lower() == ".parquet" else "webdataset"
    elif HUB_NAME.fullmatch(source):
        with naming_source(source):
            check_hub_dataset(source)
        place = source
    else:
        raise DataError(f"{source} does not exist; give a folder, a file or the name of a dataset on the Hub.")
    for file in (file for split_files in (files or {}).values() for file in split_files):
        if PATTERN_CHARACTERS.search(file):
            raise DataError(f"{file} has one of * ? [ ], which the datasets library reads as patterns; rename it.")
    with naming_source(source):
        builder = datasets.load_dataset_builder(place, name=config, data_files=files)  # nosec B615  # the user's choice
        if builder.info.builder_name == "csv":
            builder = datasets.load_dataset_builder(place, name=config, data_files=files, **CSV_OPTIONS)  # nosec B615
        for file in (str(file) for split_files in (builder.config.data_files or {}).values() for file in split_files):
            if not path.is_file():
                own_files.find(file, source)
        if builder.info.builder_name == "webdataset":
            return open_tar_files(builder.config.data_files, streaming)
        if not streaming:
            builder.download_and_prepare()
        parts = builder.as_streaming_dataset() if streaming else builder.as_dataset()
    return {str(name): part if streaming else with_own_media(part) for name, part in parts.items()}


def is_saved(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def open_saved(folder: Path) -> Dataset | DatasetDict:
    """Loads a dataset written by `save_to_disk`; raises a DataError if it refers to foreign files or is damaged."""
    own_files = OwnFiles(folder)
    with naming_source(str(folder)):
        for file in (file for name in SAVED for file in (*folder.glob(name), *folder.glob(f"*/{name}"))):
            content = json.loads(Path(own_files.find(os.path.abspath(file), str(folder))).read_text(encoding="utf-8"))
            splits, shards = content.get("splits") or [], content.get("_data_files") or []
            for name in (*splits, *(shard["filename"] for shard in shards)):
                own_files.find(os.path.join(file.parent.relative_to(folder), name), str(file))
        saved = datasets.load_from_disk(str(folder))
    parts = saved if isinstance(saved, DatasetDict) else DatasetDict({"": saved})
    for split, part in parts.items():
        part = with_own_media(part)
        for column in [name for name, feature in part.features.items() if isinstance(feature, datasets.Image)]:
            part = with_own_files(part, column, own_files, f"{folder}{split and f', split {split}'}")
        parts[split] = part
    return parts if isinstance(saved, DatasetDict) else parts[""]


def card_configs(folder: Path) -> list[Any]:
    """Returns the configurations in a dataset's card; raises a DataError if they refer to foreign files."""
    configs: list[Any] = []
    with naming_source(str(folder)):
        names = [name for name in ("README.md", ".huggingface.yaml") if (folder / name).is_file()]
        for file in (Path(OwnFiles(folder).find(name, str(folder))) for name in names):
            content = metadata_load(file) if file.suffix == ".md" else yaml.safe_load(file.read_text(encoding="utf-8"))
            configs += (content or {}).get("configs") or []
    check_configs(configs, str(folder))
    return configs


def check_configs(configs: Any, source: str) -> None:
    own_files, parts = OwnFiles(source), [configs]
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            own_files.find(part, f"{source}, the configurations of its card")
        elif isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            file_settings = {key: value for key, value in part.items() if key in ("data_dir", "data_files")}
            parts += (file_settings if "config_name" in part or file_settings else part).values()


def files_of_splits(folder: Path) -> dict[str, list[str]]:
    """Returns the files of tables or archives by split, from names of folders and files; empty if there are none."""
    names = sorted(visible_files(folder))
    names_by_suffix = [[name for name in names if suffix in suffixes_of(name)] for suffix in TABLES]
    read: list[str] = next(filter(None, names_by_suffix), [])
    others = sorted({name for kind in names_by_suffix for name in kind if ".zip" not in suffixes_of(name)} - {*read})
    if others:  # except archives, which may have the images of a table
        warn(f"{folder}: files such as {read[0]} are read; {len(others)} others are left out, such as {others[0]}.")
    parts: dict[str, list[str]] = {}
    for name, split in zip(read, one_validation(list(map(split_of_file, read))), strict=True):
        parts.setdefault(split, []).append(name)
    if len(parts) > 1 and "" in parts:
        splits, first = ", ".join(filter(None, parts)), parts[""][0]
        raise DataError(f"{folder} has files of splits ({splits}) and others, such as {first}; rename or move them.")
    return {split or "train": [str(folder.absolute() / name) for name in files] for split, files in parts.items()}


def suffixes_of(name: str) -> list[str]:
    return PurePosixPath(name.lower().replace(".tgz", ".tar.gz")).suffixes


def split_of_file(name: str) -> str:
    """Returns the split of a table or archive, such as `val-00000-of-00001.parquet` or `test/1.tar`, or ""."""
    folders = [part.lower() for part in PurePosixPath(name).parts[:-1] if part.lower() in SPLIT_FOLDERS]
    words = folders or [word.lower() for word in SPLIT_IN_FILE_NAME.findall(PurePosixPath(name).stem)]
    shard = SHARD.fullmatch(name)
    return OTHER_WORDS.get(words[-1], words[-1]) if words else shard[1] if shard else ""


def check_hub_dataset(name: str) -> None:
    """Raises a DataError if the Hub cannot be reached, without the long retries of the datasets library."""
    if constants.HF_HUB_OFFLINE or datasets.config.HF_HUB_OFFLINE:
        return
    try:
        info = HfApi().dataset_info(name, timeout=HUB_SECONDS)
    except Exception as error:
        if isinstance(error, OSError):  # an answer of the Hub
            raise
        problem = f"{name} is not a folder, and the Hub, where a dataset may have this name, cannot be reached"
        raise DataError(f"{problem}; give the folder of the photographs, as images:FOLDER.") from error
    check_configs(info.card_data.get("configs") if info.card_data else None, name)


@contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Turns errors of the datasets library into a DataError, and silences its log and progress bars."""
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
        what = "check its name, its files and the connection"
        raise DataError(f"{source} cannot be read as a dataset ({reason_of(errors[-1])}); {what}.") from error
    finally:
        datasets.logging.set_verbosity(verbosity)


def is_metadata(name: str) -> bool:
    return name.rpartition("/")[2].lower() in METADATA


def is_folder_of_photographs(source: str, config: str | None = None) -> bool:
    """Returns whether [`read_folder`] reads a source: a folder that is not a saved dataset, without configurations."""
    path = Path(source)
    if not path.is_dir() or is_saved(path):
        return False
    return not card_configs(path) and config is None and holds_photographs(path)


def holds_photographs(folder: Path) -> bool:
    """Returns whether a folder has image files or metadata; with Parquet, Arrow or tar files, it must have both."""
    names = list(visible_files(folder))
    metadata, has_images = list(filter(is_metadata, names)), any(map(has_image_suffix, names))
    holding_rows = {".parquet", ".arrow", ".tar"}
    if any(not holding_rows.isdisjoint(suffixes_of(name)) and not is_metadata(name) for name in names):
        return has_images and bool(metadata)
    return has_images or any(not name.endswith(".parquet") for name in metadata)


def holds_videos(path: Path) -> bool:
    """Returns whether a path is a folder with videos and no images; GIF files may be either."""
    suffixes = {Path(name).suffix.lower() for name in visible_files(path)} if path.is_dir() else set()
    return not suffixes.isdisjoint({*VIDEO_SUFFIXES} - {*SUFFIXES}) and suffixes.isdisjoint({*SUFFIXES} - {".gif"})


def holds_images(path: Path) -> bool:
    """Returns whether a folder or file may have images, in files, tar files or Parquet files."""
    names = visible_files(path) if path.is_dir() else [path.name]
    endings = (".parquet", *TAR_SUFFIXES)
    return any(has_image_suffix(name) or is_metadata(name) or name.lower().endswith(endings) for name in names)


def read_folder(folder: Path, suffixes: tuple[str, ...] = SUFFIXES, links: bool = False) -> dict[str, Dataset]:
    """Reads a folder of photographs, or other files, as one dataset per split, with `image` (undecoded) and the columns
    of the metadata, or the lines of `photo.txt` as `captions` of `photo.jpg`. Splits are folders below the root.
    Warnings name the files that are left out."""
    own_files, names = OwnFiles(folder, links), sorted(visible_files(folder))
    for name in names:
        own_files.find(name, str(folder))
    media = {name for name in names if name.lower().endswith(suffixes)}
    left_out, parts = {name for name in names if not is_metadata(name)}, {}
    for split, files in splits_of([name for name in names if name in media or is_metadata(name)], folder).items():
        metadata = list(filter(is_metadata, files))
        columns = read_metadata(folder, metadata, own_files) if metadata else read_beside(folder, files, names)
        left_out -= {os.path.relpath(file, folder).replace(os.sep, "/") for file in columns.get("image", ())}
        stems = set() if metadata else {name.rpartition(".")[0] for name in files}
        left_out -= {name for name in names if name.lower().endswith(BESIDE) and name.rpartition(".")[0] in stems}
        with naming_damage(f"{folder}, split {split}"):
            parts[split] = Dataset.from_dict(columns)
        if "image" in columns:
            parts[split] = parts[split].cast_column("image", datasets.Image())
    unlisted, others = sorted(left_out & media), sorted(left_out - media)
    examples = {PurePosixPath(name).suffix.lower(): name for name in others[::-1]}  # one per suffix
    if unlisted:
        warn(f"{folder}: {len(unlisted)} files that are not in its metadata are left out, such as {unlisted[0]}.")
    if others:
        read = f"captions are read from metadata.csv or a .txt next to a file, and files of {', '.join(suffixes)}"
        warn(f"{folder}: {len(others)} files are left out, such as {', '.join(sorted(examples.values())[:5])}; {read}.")
    return parts


def splits_of(names: list[str], folder: Path) -> dict[str, list[str]]:
    """Returns names of images and metadata by split, see [`read_folder`]."""
    parts: dict[str, list[str]] = {}
    folders = [name.lower().partition("/") for name in names]
    splits = [first if inside and first in SPLIT_FOLDERS else "" for first, inside, _ in folders]
    for name, split in zip(names, one_validation(splits), strict=True):
        parts.setdefault(split, []).append(name)
    outside = parts.pop("", [])
    if not outside:
        return parts
    has_metadata = any(is_metadata(name) and "/" not in name for name in outside)
    # a single name such as train or test may have another meaning
    if not has_metadata and (len(parts) > 1 or not parts.keys().isdisjoint((VALIDATION, "val", "valid"))):
        problem = f"{folder} has folders of splits ({', '.join(parts)}) and other images, such as {outside[0]}"
        raise DataError(f"{problem}; move them into these folders, or list all images in {folder}/metadata.csv.")
    return {"train": names}


def read_beside(folder: Path, images: list[str], names: list[str]) -> dict[str, list]:
    """Returns images with the captions in text files of the same name, one per line."""
    texts: dict[str, list[str]] = {}
    for text in (name for end in BESIDE for name in names if name.lower().endswith(end)):
        texts.setdefault(text.rpartition(".")[0], []).append(text)
    captions: list[list[str]] = []
    for stem in (name.rpartition(".")[0] for name in images):
        lines: list[str] = []
        for text in texts.get(stem, ()):
            with naming_damage(str(folder / text)):
                lines += (folder / text).read_text(encoding="utf-8-sig").split("\n")
        captions.append([line for line in dict.fromkeys(map(str.strip, lines)) if line])
    columns: dict[str, list] = {"image": [os.path.join(os.path.abspath(folder), name) for name in images]}
    return {**columns, "captions": captions} if any(captions) else columns


def read_metadata(folder: Path, names: list[str], own_files: OwnFiles) -> dict[str, list]:
    """Returns the rows of several metadata files; paths are relative to the folder of each file."""
    columns: list[str] = []
    files_of_paths: dict[str, Path] = {}
    all_rows: list[dict[str, Any]] = []
    for name in names:
        file = folder / name
        with naming_damage(str(file)):
            rows = METADATA_READERS[file.suffix.lower()](file)
        keys = list(dict.fromkeys(key for row in rows for key in row))
        if rows and columns and set(keys) != set(columns):
            raise DataError(f"{file} has the columns {', '.join(keys)}; {folder / names[0]} has {', '.join(columns)}.")
        columns = columns or keys
        if rows and FILE_NAME not in keys:
            problem = f"{file} has no column {FILE_NAME} among {', '.join(keys)}"
            raise DataError(f"{problem}; its first line must be file_name,caption.")
        for number, row in enumerate(rows):
            where = f"{file}, row {number}"
            with naming_damage(where):
                path = row[FILE_NAME]
                if "\\" in path and not (file.parent / path).exists():
                    path = path.replace("\\", "/")  # Windows paths
                path = own_files.find(os.path.join(file.parent.relative_to(folder), path), where)
            if files_of_paths.setdefault(path, file) != file:
                raise DataError(f"{file} and {files_of_paths[path]} both have {path}; remove it from one of them.")
            all_rows.append({**row, FILE_NAME: path})
    return {"image" if key == FILE_NAME else key: [row.get(key) for row in all_rows] for key in columns}


def read_csv(file: Path) -> list[dict[str, Any]]:
    with open(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text, strict=True, skipinitialspace=True)
        names = [name.strip() for name in reader.fieldnames or []]
        for place, name in enumerate(names):
            if name and name in names[:place]:
                if name.lower() not in CAPTION_NAMES:
                    raise DataError(f"{file} has the column {name} twice; remove one.")
                names[place] = f"{name}.{place}"
        reader.fieldnames = names
        rows: list[dict[str, Any]] = []
        for row in reader:
            if None in row:
                raise DataError(f"{file}, line {reader.line_num} has too many fields; quote captions with a comma.")
            rows.append({key: value or None for key, value in row.items()})
    return rows


def read_jsonl(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8-sig").split("\n") if line.strip()]


METADATA_READERS = {".csv": read_csv, ".jsonl": read_jsonl, ".parquet": lambda file: pq.read_table(file).to_pylist()}

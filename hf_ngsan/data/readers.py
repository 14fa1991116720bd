"""Loads datasets by spec, such as `features:DIR`; each kind of dataset has a reader.

```python
load_data("scenes:size=2000,seed=1", "train")
register_reader(Reader("mine", "my_module:load", "my photographs", ("image", "captions"), source="DIR"))
load_data("mine:photos", "train")  # calls my_module.load("photos", "train")
```

The command line imports a user's module with `--import my_module`.
"""

import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from ..io.messages import did_you_mean
from .errors import DataError

if TYPE_CHECKING:
    from datasets import Dataset

VALIDATION = "validation"  # the split that is held out if a dataset lacks it
OTHER_NAMES = ("val", "valid", "dev")  # other names of this split
MIN_ROWS = 4  # minimum rows for holding some out


class ExtraScores(Protocol):
    """Caption scores for a specific kind of dataset: their `names` in the order of reports, and the maximum number of
    new tokens in a result of `complete`."""

    names: Sequence[str]
    completion_tokens: int

    def compute(
        self, rows: "Dataset", captions: Sequence[str], complete: Callable[[Sequence[int], Sequence[str]], list[str]]
    ) -> dict[str, float]:
        """Returns scores by name, for one caption per row; scores that cannot be computed are absent.

        `complete` is called with row indices and their prefixes, and returns the completed captions.
        """
        ...


@dataclass(frozen=True)
class Reader:
    """A kind of dataset.

    Attributes:
        name: first word of its specs.
        loader: reads one split, as `loader(split, **keys)` or, if specs have a source, `loader(source, split, **keys)`;
            a function, or `"module:function"`, which is imported on first use. It raises [`DataError`] for data that
            cannot be used.
        summary: one-line description of the datasets.
        columns: columns of all these datasets, in addition to `image_id`.
        source: placeholder for the text after `name:`, such as `DIR`; empty if specs have no source.
        keys: type (`int`, `bool` or `str`) of each key in `KEY=VALUE`; the keys are keyword arguments of the loader.
        usage: syntax of a spec; if empty, name, source and keys.
        extra_scores: an [`ExtraScores`], or its `"module:name"`; or `None`.
    """

    name: str
    loader: str | Callable[..., "Dataset"]
    summary: str
    columns: Sequence[str]
    source: str = ""
    keys: Mapping[str, type] = field(default_factory=dict)
    usage: str = ""
    extra_scores: str | ExtraScores | None = None

    def __post_init__(self) -> None:
        if not self.usage:
            rest = f":{self.source}[,KEY=VALUE,…]" if self.source else "[:KEY=VALUE,…]"
            object.__setattr__(self, "usage", self.name + (rest if self.keys else f":{self.source}".rstrip(":")))


READERS: dict[str, Reader] = {}


def register_reader(reader: Reader) -> None:
    """Adds a reader; all functions and commands then accept its specs. Raises a DataError for an existing name."""
    if READERS.get(reader.name, reader) != reader:
        raise DataError(f"A reader {reader.name!r} already exists; choose another name.")
    READERS[reader.name] = reader


def find_reader(spec: str) -> Reader:
    """Returns the reader of a spec; raises a DataError for an unknown one."""
    name = str(spec).partition(":")[0]
    if name not in READERS:
        is_place = ":" not in spec and ("/" in spec or os.path.exists(spec))
        meant = f"images:{spec}, if it is a folder or a dataset on the Hub, or " if is_place else ""
        usages = ", ".join(reader.usage for reader in READERS.values())
        listed = f"; write {meant}one of {usages}."
        raise DataError(f"Unknown dataset {spec!r}{listed if meant else did_you_mean(name, READERS, listed)}")
    return READERS[name]


def load_data(spec: str, split: str) -> "Dataset":
    """Loads one split of a dataset.

    [`describe_readers`] lists the specs. A spec is the name of a reader and, after a colon, its arguments: a source,
    such as a folder, and `KEY=VALUE`, separated by commas. The source is the longest text that exists as a file or
    folder, so that its name may have commas and equals signs.

    Args:
        spec: the dataset.
        split: `train`, `validation` (or `val`), `test`, or any other split of the dataset.

    Returns:
        A memory-mapped `datasets.Dataset` with rows that follow the feature contract; features and boxes are read as
        float32 arrays, other columns as Python objects.

    Raises:
        DataError: an unknown spec, key or split, or data that cannot be used.
    """
    reader = find_reader(spec)
    source, values = parse_spec(spec, reader)
    loader = resolve_name(reader.loader) if isinstance(reader.loader, str) else reader.loader
    return loader(*([source] if reader.source else []), VALIDATION if split == "val" else split, **values)


def parse_spec(spec: str, reader: Reader) -> tuple[str, dict[str, Any]]:
    """Splits a spec into its source (empty if the reader has none) and the values of its keys."""
    text = spec.partition(":")[2]
    if not reader.source:
        source, parts = "", [part.strip() for part in text.split(",") if part]
    else:
        parts = re.split(r",(?=\s*\w+\s*=)", text) if reader.keys else [text]
        sources = [os.path.expanduser(",".join(parts[:number])) for number in range(1, len(parts) + 1)]
        number = next((number for number in range(len(parts), 0, -1) if os.path.lexists(sources[number - 1])), 1)
        source, parts = sources[number - 1], parts[number:]
        if not source:
            raise DataError(f"The dataset {spec!r} lacks {reader.source}; write {reader.usage}.")
    values: dict[str, Any] = {}
    for part in parts:
        key, _, value = (piece.strip() for piece in part.partition("="))
        kind = reader.keys.get(key)
        if kind is None:
            raise DataError(f"In the dataset {spec!r}, {key!r} is not a key; available: {', '.join(reader.keys)}.")
        if key in values or not value:
            raise DataError(f"In the dataset {spec!r}, {key!r} must be given once, as {key}=VALUE.")
        try:
            values[key] = {"true": True, "false": False}[value.lower()] if kind is bool else kind(value)
        except (KeyError, ValueError):
            demand = "true or false" if kind is bool else "a whole number"
            raise DataError(f"In the dataset {spec!r}, {key} is {value!r:.60}; it must be {demand}.") from None
    return source, values


def extra_scores_of(spec: str) -> ExtraScores | None:
    """Returns the extra scores of a dataset, or None; raises a DataError if the spec has no reader."""
    scores = find_reader(spec).extra_scores
    return resolve_name(scores) if isinstance(scores, str) else scores


def describe_readers(width: int = 100) -> str:
    """Returns usage, summary and keys of every reader, for the help text of a command."""
    blocks = []
    for reader in READERS.values():
        keys = f". Keys: {', '.join(reader.keys)}" if reader.keys else ""
        text = textwrap.fill(reader.summary.replace("`", "") + keys, width - 6, break_on_hyphens=False)
        blocks.append(f"  {reader.usage}\n{textwrap.indent(text, ' ' * 6)}")
    return "\n".join(blocks)


def names_of_split(split: str) -> tuple[str, ...]:
    """Returns the possible names of a split in data, the requested one first."""
    return (split, VALIDATION, *OTHER_NAMES) if split in (VALIDATION, "val") else (split,)


def find_split(split: str, available: Iterable[str]) -> str | None:
    """Returns the name under which a split is available, or None."""
    available = set(available)
    return next((name for name in names_of_split(split) if name in available), None)


def find_files(folder: Path, split: str, *patterns: str) -> list[Path]:
    """Returns the files of a split, by any of its names; `*` in patterns such as `captions_*.json` is the split."""
    from .images import OwnFiles

    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}.")
    start, _, end = patterns[0].partition("*")
    known = sorted(file.name.removeprefix(start).removesuffix(end) for file in folder.glob(patterns[0]))
    name = find_split(split, known)
    if name is None:
        listed = ", ".join(known) or "none"
        raise DataError(f"{folder} has no split {split!r} ({' and '.join(patterns)}); available: {listed}.")
    return [Path(OwnFiles(folder).find(pattern.replace("*", name), str(folder))) for pattern in patterns]


def set_aside(rows: "Dataset", name: str) -> tuple["Dataset", "Dataset"]:
    """Splits at least four training rows into training and validation rows: every tenth row is a validation row, every
    fifth of fewer than twenty rows, and every second of fewer than ten."""
    if len(rows) < MIN_ROWS:
        problem = f"{name} has no split {VALIDATION!r} and {len(rows)} training rows, too few to hold some out"
        raise DataError(f"{problem}; add rows, or disable validation with data.validation_split=null.")
    every = 10 if len(rows) >= 20 else 5 if len(rows) >= 10 else 2
    chosen = range(every - 1, len(rows), every)
    return rows.select([row for row in range(len(rows)) if row % every != every - 1]), rows.select(chosen)


REGIONS = ("visual_features", "visual_boxes")
SIZED = ("width", "height", "split", "objects")
for built_in in (
    Reader(
        name="scenes",
        loader="hf_ngsan.data.scenes:load_scenes",
        summary="synthetic scenes, generated on first use, e.g. `scenes:size=2000,seed=1`",
        columns=(*REGIONS, "captions", *SIZED),
        keys=dict.fromkeys(("size", "validation", "test", "seed"), int)
        | {"images": bool, "image_size": int, "descriptions": bool, "language": str},
        extra_scores="hf_ngsan.data.scenes.scoring:SCENE_SCORES",
    ),
    Reader(
        name="moving_scenes",
        loader="hf_ngsan.data.moving_scenes:load_moving_scenes",
        summary="synthetic clips of actions that depend on the order of frames, e.g. `moving_scenes:size=2000,seed=1`",
        columns=("frames", "captions", "action", "object"),
        keys=dict.fromkeys(("size", "validation", "test", "seed", "num_frames", "image_size"), int),
        extra_scores="hf_ngsan.data.moving_scenes:ACTION_SCORES",
    ),
    Reader(
        name="videos",
        loader="hf_ngsan.data.images.loading:load_videos",
        source="FOLDER",
        usage="videos:FOLDER[,captions=COLUMN+…][,links=true]",
        summary="a folder of videos, with captions like a folder of photographs (extra `video`)",
        columns=("video", "captions", "file_name"),
        keys={"captions": str, "links": bool},
    ),
    Reader(
        name="coco-layout",
        loader="hf_ngsan.data.published:load_coco_layout",
        source="DIR",
        summary="boxes and captions of COCO, from `instances_SPLIT.json` and `captions_SPLIT.json`; the feature of a"
        " region is its one-hot category",
        columns=(*REGIONS, "captions", *SIZED),
    ),
    Reader(
        name="images",
        loader="hf_ngsan.data.images.loading:load_image_dataset",
        source="SOURCE",
        usage="images:SOURCE[,image=COLUMN][,captions=COLUMN+…][,config=NAME][,links=true]",
        summary="images with captions. SOURCE is a Parquet file, a WebDataset tar file, a dataset on the Hub, or a"
        " folder. The folder contains Parquet or tar files, a dataset written by `save_to_disk`, or image"
        " files with their captions in `metadata.csv`, `metadata.jsonl` or `photo.txt` next to `photo.jpg`."
        " `streaming=true` reads images in order and shuffles them in windows of `shuffle_buffer=1000`."
        " `links=true` allows links out of the folder",
        columns=("image", "captions"),
        keys={"image": str, "captions": str, "config": str, "streaming": bool, "shuffle_buffer": int, "links": bool},
    ),
    Reader(
        name="features",
        loader="hf_ngsan.data.saved:load_saved",
        source="DIR",
        summary="a folder of features written by `hf-ngsan extract` or by `save_to_disk` of the datasets library",
        columns=(*REGIONS, "captions"),
    ),
    Reader(
        name="relations",
        loader="hf_ngsan.data.relations:load_relations",
        source="DIR",
        usage="relations:DIR[,exchanged=true]",
        summary="true statements about positions of detected objects, such as `the dog lies left of the ball`. DIR is"
        " a folder as for `features:`, whose regions have `objects`. `exchanged=true` adds three changed"
        " copies of each photograph: mirrored, with two objects exchanged, and with both changes",
        columns=(*REGIONS, "captions", "objects"),
        keys={"exchanged": bool},
        extra_scores="hf_ngsan.data.scenes.scoring:RELATION_SCORES",
    ),
    Reader(
        name="vatex",
        loader="hf_ngsan.data.published:load_vatex",
        source="DIR",
        usage="vatex:DIR[,language=zh]",
        summary="VATEX: its JSON files of English and Chinese captions, and features `VIDEO.npy` of shape (1, T, D)",
        columns=("visual_features", "captions", "file_name"),
        keys={"language": str},
    ),
    Reader(
        name="parallel",
        loader="hf_ngsan.data.parallel_text:load_parallel",
        source="SOURCE",
        usage="parallel:SOURCE,source=LANGUAGE,target=LANGUAGE",
        summary="sentences and their translations. SOURCE is a folder of text files `SPLIT.LANGUAGE` with one"
        " sentence per line, or a dataset as for `images:`, with a column for each language or one column"
        " `translation` with both",
        columns=("line", "source", "target"),
        keys={"source": str, "target": str},
    ),
    Reader(
        name="vqa",
        loader="hf_ngsan.data.question_answering:load_vqa",
        source="DIR",
        usage="vqa:DIR,features=DIR[,skip_errors=true]",
        summary="the downloaded questions and annotations of VQA v2, and image features in a folder"
        " written by `hf-ngsan convert` or `extract`",
        columns=("question", "answers", "answer_type", *REGIONS),
        keys={"features": str, "skip_errors": bool},
    ),
    Reader(
        name="nlvr",
        loader="hf_ngsan.data.question_answering:load_nlvr",
        source="DIR",
        summary="NLVR: true or false statements about synthetic pictures. The split `dev/5` is directory 5 of `dev`;"
        " `dev-5` is the rest",
        columns=("question", "answers", *REGIONS, "objects", "width", "height", "split"),
        keys={"positions": bool, "regions": bool, "images": bool},
    ),
):
    register_reader(built_in)

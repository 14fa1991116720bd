"""The reader of `vatex:DIR`: VATEX as downloaded, with a file of features for each video and JSON files of captions."""

from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path

from datasets import Dataset, Value

from .annotations import CAPTIONS_OF_VATEX, is_vatex_captions, listing, read_records, read_video, vatex_records
from .coco_files import read_json
from .contract import caption_features, check_features
from .errors import DataError, naming_damage
from .formats.layouts import VatexSource
from .prepared import Rows, fingerprint, prepare
from .readers import names_of_split

NAMES_IN_FILES = {"train": ("training", "train"), "validation": ("validation", "val"), "test": ("public_test", "test")}
"""Words for the splits in the names of caption files."""


def load_vatex(directory: str, split: str, *, language: str = "en") -> Dataset:
    """Loads one split of VATEX.

    Videos without a file of features are left out; a warning counts and names them.

    Args:
        directory: a folder with `vatex_training_v1.0.json` and the like, and anywhere within it `VIDEO.npy`, an array
            `(1, T, D)`.
        split: `train`, `validation` (or `val`), `test`, or any other word in the name of a caption file.
        language: of the captions: `en`, or `zh`, whose characters become words.

    Returns:
        `datasets.Dataset`, memory-mapped, with `image_id` (the place in the caption file), `file_name` (the video's),
        `visual_features` (of T frames, without boxes) and `captions`.

    Raises:
        DataError: an unknown language, no caption file, or no video with features; a caption or a file of features that
            cannot be used.
    """
    if language not in CAPTIONS_OF_VATEX:
        raise DataError(
            f"vatex:{directory} asks for the language {language!r}; there are {', '.join(CAPTIONS_OF_VATEX)}."
        )
    folder = Path(directory)
    captions = find_captions(folder, split)
    document = read_json(captions)
    if not is_vatex_captions(document):
        raise DataError(f"{captions} holds no captions of VATEX: it must be a list of videos, each with its videoID.")
    records = vatex_records(document, captions)
    read = partial(read_video, language=language)
    videos = {video.name: video.captions for _, video in read_records(records, read, attrgetter("key"), None)}
    source = VatexSource(folder)
    files = dict(source.names)
    states = [(file, (folder / file).stat()) for name, file in sorted(files.items()) if name in videos]
    stamps = [(file, state.st_size, state.st_mtime_ns) for file, state in states]
    key = fingerprint("vatex", language, str(folder.absolute()), stamps, captions)
    return prepare("vatex", key, split, lambda: make_rows(source, captions, videos, files))


def find_captions(folder: Path, split: str) -> Path:
    """Returns the caption file of a split; a DataError lists those that are there."""
    files = sorted(folder.glob("*.json"))
    words = [word for name in names_of_split(split) for word in NAMES_IN_FILES.get(name, (name,))]
    for word in dict.fromkeys(words):
        of_split = [file for file in files if word in file.stem]
        if len(of_split) > 1:
            raise DataError(
                f"{folder} has several caption files of split {split!r}: {of_split[0]}, {of_split[1]}; keep one."
            )
        if of_split:
            return of_split[0]
    names = ", ".join(file.name for file in files) or "none"
    raise DataError(f"{folder} has no caption file of split {split!r} (vatex_{words[0]}_v1.0.json); there are {names}.")


def make_rows(source: VatexSource, captions: Path, videos: dict[str, tuple[str, ...]], files: dict[str, str]) -> Rows:
    """Returns the rows of the videos with features, with a note about the others."""
    present = [(place, name) for place, name in enumerate(videos) if name in files]
    missing = [name for name in videos if name not in files]
    if not present:
        raise DataError(f"{source.path} has features of none of the {len(videos)} videos of {captions.name}.")
    with naming_damage(source.where(files[present[0][1]])):
        size = source.read_record(files[present[0][1]]).features.shape[-1]

    def rows() -> Iterator[dict]:
        for place, name in present:
            where = source.where(files[name])
            with naming_damage(where):
                features = check_features(source.read_record(files[name]).features, where, size)
            yield {"image_id": place, "file_name": name, "visual_features": features, "captions": list(videos[name])}

    columns = caption_features(size, boxes=False)
    columns["file_name"] = Value("string")
    note = f"{len(missing)} of {len(videos)} videos of {captions} have no features and are left out"
    notes = [f"{note}: {listing(missing)}."] if missing else []
    return Rows(columns, rows(), len(present), notes)

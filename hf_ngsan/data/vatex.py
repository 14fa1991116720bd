"""VATEX as it lies on the disk: a file of features for each video, and JSON files of captions."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from datasets import Dataset, Value

from ..ground.coco_files import CocoFileError
from .contract import caption_features, check_features
from .errors import DataError
from .formats.annotations import LISTED_AT_MOST, read_document
from .formats.record import files_in, stem_of
from .formats.vatex import VatexSource
from .formats.vatex_captions import FIELDS, is_vatex, vatex_entries
from .prepared import Rows, fingerprint, prepare
from .splits import names_of_split

NAMES_IN_FILES = {"train": ("training", "train"), "validation": ("validation", "val"), "test": ("public_test", "test")}
"""What the names of caption files call the splits."""


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
    if language not in FIELDS:
        raise DataError(f"vatex:{directory} asks for the language {language!r}; there are {', '.join(FIELDS)}.")
    folder = Path(directory)
    if not folder.is_dir():
        raise DataError(f"{directory} is not a folder; give that of VATEX's caption files and features.")
    captions = find_captions(folder, split)
    videos = read_videos(captions, language)
    files = {stem_of(folder, key): key for key in files_in(folder, ".npy")}
    stamps = sorted((key, *stamp_of(folder / key)) for name, key in files.items() if name in videos)
    key = fingerprint("vatex", language, str(folder.absolute()), stamps, captions)
    return prepare("vatex", key, split, lambda: make_rows(folder, captions, videos, files))


def stamp_of(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def find_captions(folder: Path, split: str) -> Path:
    """Returns the caption file of a split; a DataError lists those that are there."""
    there = sorted(folder.glob("*.json"))
    words = [word for name in names_of_split(split) for word in NAMES_IN_FILES.get(name, (name,))]
    for word in dict.fromkeys(words):
        found = [file for file in there if word in file.stem]
        if len(found) > 1:
            raise DataError(f"{folder} has several caption files of split {split!r}: {found[0]}, {found[1]}; keep one.")
        if found:
            return found[0]
    names = ", ".join(file.name for file in there) or "none"
    raise DataError(f"{folder} has no caption file of split {split!r} (vatex_{words[0]}_v1.0.json); there are {names}.")


def read_videos(path: Path, language: str) -> dict[str, tuple[str, ...]]:
    """Returns the captions of each video of a file, in its order."""
    document = read_document(path)
    if not is_vatex(document):
        raise DataError(f"{path} holds no captions of VATEX: it must be a list of videos, each with its videoID.")
    videos: dict[str, tuple[str, ...]] = {}
    try:
        for entry in vatex_entries(document, path, language):  # type: ignore[arg-type]
            video = entry.read()
            if video.name in videos:
                raise DataError(f"{entry.where}: the video {video.name} is there twice.")
            videos[str(video.name)] = video.captions or ()
    except CocoFileError as error:
        raise DataError(str(error)) from None
    return videos


def make_rows(folder: Path, captions: Path, videos: dict[str, tuple[str, ...]], files: dict[str, str]) -> Rows:
    """Returns the rows of the videos that have features, with a note on those that have none."""
    source = VatexSource(folder)
    found = [(place, name) for place, name in enumerate(videos) if name in files]
    missing = [name for name in videos if name not in files]
    if not found:
        raise DataError(f"{folder} has features of none of the {len(videos)} videos of {captions.name}.")
    size = source.read_record(files[found[0][1]]).features.shape[-1]

    def rows() -> Iterator[dict]:
        for place, name in found:
            features = source.read_record(files[name]).features
            yield {
                "image_id": place,
                "file_name": name,
                "visual_features": check_features(features, str(folder / files[name]), size),
                "captions": list(videos[name]),
            }

    columns = caption_features(size, boxes=False)
    columns["file_name"] = Value("string")
    notes = [missing_note(captions, missing, len(videos))] if missing else []
    return Rows(columns, rows(), len(found), notes)


def missing_note(captions: Path, missing: Sequence[str], number: int) -> str:
    shown = ", ".join(islice(missing, LISTED_AT_MOST)) + (", ..." if len(missing) > LISTED_AT_MOST else "")
    return f"{len(missing)} of {number} videos of {captions} have no features and are left out: {shown}."

"""The reader of `vatex:DIR`: VATEX as downloaded, with a file of features for each video and JSON files of captions."""

from collections.abc import Iterator
from pathlib import Path

from datasets import Dataset, Value

from .contract import caption_features, check_features
from .errors import DataError, as_data_error
from .formats.annotation_files import CAPTIONS_OF_VATEX, is_vatex_captions, read_all, read_document, vatex_entries
from .formats.annotations import listing
from .formats.vatex import VatexSource
from .prepared import Rows, fingerprint, prepare
from .splits import names_of_split

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
    if not folder.is_dir():
        raise DataError(f"{directory} is not a folder; give that of VATEX's caption files and features.")
    captions = find_captions(folder, split)
    videos = read_videos(captions, language)
    source = VatexSource(folder)
    files = dict(source.names)
    states = [(key, (folder / key).stat()) for name, key in sorted(files.items()) if name in videos]
    stamps = [(key, state.st_size, state.st_mtime_ns) for key, state in states]
    key = fingerprint("vatex", language, str(folder.absolute()), stamps, captions)
    return prepare("vatex", key, split, lambda: make_rows(source, captions, videos, files))


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
    if not is_vatex_captions(document):
        raise DataError(f"{path} holds no captions of VATEX: it must be a list of videos, each with its videoID.")
    skipped: list[dict] = []
    entries = vatex_entries(document, path, language)  # type: ignore[arg-type]
    with as_data_error():
        videos = {video.name: video.captions for _, video in read_all(entries, lambda video: video.key, skipped)}
    if skipped:
        raise DataError(skipped[0]["reason"])
    return videos


def make_rows(source: VatexSource, captions: Path, videos: dict[str, tuple[str, ...]], files: dict[str, str]) -> Rows:
    """Returns the rows of the videos with features, with a note about the others."""
    found = [(place, name) for place, name in enumerate(videos) if name in files]
    missing = [name for name in videos if name not in files]
    if not found:
        raise DataError(f"{source.path} has features of none of the {len(videos)} videos of {captions.name}.")
    size = source.read_record(files[found[0][1]]).features.shape[-1]

    def rows() -> Iterator[dict]:
        for place, name in found:
            features = source.read_record(files[name]).features
            yield {
                "image_id": place,
                "file_name": name,
                "visual_features": check_features(features, source.where(files[name]), size),
                "captions": list(videos[name]),
            }

    columns = caption_features(size, boxes=False)
    columns["file_name"] = Value("string")
    note = f"{len(missing)} of {len(videos)} videos of {captions} have no features and are left out"
    notes = [f"{note}: {listing(missing)}."] if missing else []
    return Rows(columns, rows(), len(found), notes)

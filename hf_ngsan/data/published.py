"""Readers of captions in the published layouts of COCO and VATEX: `coco-layout:DIR` and `vatex:DIR`."""

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from glob import glob
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Value

from .annotations import CAPTIONS_OF_VATEX, listing, parse_records, read_video_captions, vatex_records
from .coco_files import Record, in_order, known_id, read_json, records_by_id, records_of
from .contract import ROUNDING, caption_features, check_features, clamp_boxes, widening_note
from .errors import DataError, naming_damage
from .formats import FEATURE_FORMATS
from .formats.layouts import FeatureSource
from .images import OwnFiles
from .prepared import Rows, prepare
from .readers import find_files

NAMES_IN_FILES = {"validation": "val", "test": "public_test"}  # split names in VATEX's caption files


def load_coco_layout(directory: str, split: str) -> Dataset:
    """Loads one split of a folder in COCO's layout as a dataset of the contract.

    The feature of a region is its one-hot category, in the order of the file's `categories`. Boxes are clipped to the
    image. Rows are the images with at least one caption and one box, sorted by image id; captions are sorted by id,
    without line breaks and double spaces.

    Args:
        directory: folder with `instances_NAME.json` and `captions_NAME.json`.
        split: NAME; `validation` and `val` are equivalent.

    Returns:
        `datasets.Dataset` with `width`, `height`, `split` and `objects`, the category names of the regions. Warnings
        count images that were left out, clipped boxes, and boxes without area, which are widened.

    Raises:
        DataError: a file is missing, or a field of it is missing or wrong.
    """
    instances, captions = find_files(Path(directory), split, "instances_*.json", "captions_*.json")
    parts = [str(instances), instances, captions]
    return prepare("coco-layout", 1, split, parts, lambda: read_layout(instances, captions, split))


def read_layout(instances_path: Path, captions_path: Path, split: str) -> Rows:
    instances, captions_file = read_json(instances_path), read_json(captions_path)
    sizes = {image_id: image.size() for image_id, image in records_by_id(instances, "images", instances_path).items()}
    categories = records_by_id(instances, "categories", instances_path)
    names = [str(category.fields.get("name", number)) for number, category in categories.items()]
    places = {category: place for place, category in enumerate(categories)}
    corners_of, indices, clipped = defaultdict(list), defaultdict(list), 0
    for annotation in records_of(instances, "annotations", instances_path):
        image_id = known_id(annotation, "image_id", sizes)
        corners, beyond = clipped_box(annotation, sizes[image_id])
        clipped += beyond
        corners_of[image_id].append(corners)
        indices[image_id].append(places[known_id(annotation, "category_id", places)])
    captions, blank = defaultdict(list), 0
    for annotation in in_order(records_of(captions_file, "annotations", captions_path)):
        image_id, text = known_id(annotation, "image_id", sizes), annotation.text("caption")
        if text:
            captions[image_id].append(text)
        blank += not text
    image_ids = sorted(corners_of.keys() & captions.keys())
    clamped = {image_id: clamp_boxes(np.array(corners_of[image_id])) for image_id in image_ids}
    widened = sum(number for _, number in clamped.values())

    def rows() -> Iterator[dict[str, Any]]:
        one_hot = np.eye(len(names), dtype=np.float16)
        for image_id in image_ids:
            width, height = sizes[image_id]
            yield {
                "image_id": image_id,
                "visual_features": one_hot[indices[image_id]],
                "visual_boxes": clamped[image_id][0],
                "captions": captions[image_id],
                "width": width,
                "height": height,
                "split": split,
                "objects": [names[index] for index in indices[image_id]],
            }

    notes = []
    without_boxes, without_captions = len(sizes.keys() - indices.keys()), len(sizes.keys() - captions.keys())
    if without_boxes or without_captions:
        lacks = f"{without_boxes} without a box, {without_captions} without a caption"
        number = f"{len(sizes) - len(image_ids)} of {len(sizes)} images"
        notes.append(f"{instances_path}: {number} were left out ({lacks}).")
    if blank:
        notes.append(f"{captions_path}: {blank} captions without words were left out.")
    if clipped:
        notes.append(f"{instances_path}: boxes that extend beyond their image were clipped: {clipped}.")
    if widened:
        notes.append(widening_note(str(instances_path), widened))
    features = caption_features(len(names), size=True, split=True, objects=True)
    return Rows(features, rows(), len(image_ids), notes)


def clipped_box(annotation: Record, size: tuple[int, int]) -> tuple[list[float], bool]:
    """Returns a box's corners relative to its image, clipped, and whether more than rounding was clipped."""
    box = annotation.fields.get("bbox")
    error = annotation.error("bbox", f"must be x, y, width, height in pixels, in an image of {size[0]} x {size[1]}")
    if not isinstance(box, list) or len(box) != 4 or not all(type(side) in (int, float) for side in box):
        raise error
    left, top, right, bottom = box[0], box[1], box[0] + box[2], box[1] + box[3]
    if not all(map(math.isfinite, box)) or min(*box[2:], right, bottom) < 0 or left > size[0] or top > size[1]:
        raise error
    overshoot = max(-left, -top, right - size[0], bottom - size[1])
    corners = [left / size[0], top / size[1], right / size[0], bottom / size[1]]
    return [min(max(side, 0.0), 1.0) for side in corners], overshoot > ROUNDING


def load_vatex(directory: str, split: str, *, language: str = "en") -> Dataset:
    """Loads one split of VATEX: videos with features `VIDEO.npy` (1, T, D) and captions in English, or in Chinese with
    spaces between characters. Videos without features are left out, with a warning."""
    if language not in CAPTIONS_OF_VATEX:
        raise DataError(f"vatex:{directory} has no language {language!r}; available: {', '.join(CAPTIONS_OF_VATEX)}.")
    folder = Path(directory)
    pattern = f"*{NAMES_IN_FILES.get(split, split)}*.json"
    own_files = OwnFiles(folder)
    files = [Path(own_files.find(name, str(folder))) for name in sorted(glob(pattern, root_dir=folder))]
    if len(files) != 1:
        listed = ", ".join(file.name for file in files or sorted(folder.glob("*.json"))) or "none"
        raise DataError(f"{folder} must have one caption file {pattern} for the split {split!r}; available: {listed}.")
    [captions] = files
    records = vatex_records(read_json(captions), captions)
    read = partial(read_video_captions, language=language)
    videos = {video.name: video.captions for _, video in parse_records(records, read, attrgetter("key"), None)}
    source = FEATURE_FORMATS["vatex"].open(folder)
    states = [(file, (folder / file).stat()) for name, file in sorted(source.names) if name in videos]
    stamps = [(file, state.st_size, state.st_mtime_ns) for file, state in states]
    parts = [language, str(folder.absolute()), stamps, captions]
    return prepare("vatex", 1, split, parts, lambda: rows_of_videos(source, captions, videos))


def rows_of_videos(source: FeatureSource, captions: Path, videos: dict[str, tuple[str, ...]]) -> Rows:
    files = dict(source.names)
    present = [(place, name) for place, name in enumerate(videos) if name in files]
    missing = [name for name in videos if name not in files]
    if not present:
        raise DataError(f"{source.path} has no features of the {len(videos)} videos of {captions.name}.")

    def features_of(name: str, size: int | None) -> np.ndarray:
        where = source.where(files[name])
        with naming_damage(where):
            return check_features(source.read_record(files[name]).features, where, size)

    size = features_of(present[0][1], None).shape[-1]

    def rows() -> Iterator[dict]:
        for place, name in present:
            features = features_of(name, size)
            yield {"image_id": place, "file_name": name, "visual_features": features, "captions": list(videos[name])}

    columns = caption_features(size, boxes=False)
    columns["file_name"] = Value("string")
    note = f"{len(missing)} of {len(videos)} videos of {captions} have no features and are left out"
    return Rows(columns, rows(), len(present), [f"{note}: {listing(missing)}."] if missing else [])

"""Reads boxes of images from files of detectors and annotation tools, and matches them with images."""

import json
import logging
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from ..io.files import FileStamp, stamp_of_content
from .annotations import listing
from .coco_files import Record, checked_record, known_id, read_json, records_by_id, records_of
from .errors import DataError, note_of_left_out
from .images import OwnFiles
from .images.sources import METADATA_READERS

logger = logging.getLogger(__name__)

SHARES = (1, 1)  # `size` of an image whose boxes are relative to its sides
KEYS: Any = (  # keys of an image's file name and id
    lambda name, _: name and PurePath(name).as_posix(),
    lambda name, _: name and PurePath(name).with_suffix("").as_posix(),
    lambda name, _: name and PurePath(name).stem,
    lambda _, number: None if number is None else str(number),
)


@dataclass(frozen=True)
class ImageBoxes:
    """Boxes of one image with labels and scores, and the name, id and size of the image."""

    corners: np.ndarray  # `(N, 4)` float32: x1, y1, x2, y2, in pixels of the upright image unless `size` is `SHARES`
    scores: np.ndarray
    labels: np.ndarray  # strings
    size: tuple[int, int] | None = None  # width and height of the image, if known
    name: str | None = None  # name of its file
    image_id: int | str | None = None

    @classmethod
    def of(cls, corners: Any, scores: Any, labels: Any, *image_fields: Any) -> "ImageBoxes":
        """Makes the boxes of an image from arrays, tensors or lists."""
        plain = [part if isinstance(part, (list, tuple)) else part.tolist() for part in (corners, scores, labels)]
        arrays = np.array(plain[0], np.float32).reshape(-1, 4), np.array(plain[1], float)
        return cls(*arrays, np.array([*map(str, plain[2])], object), *image_fields)

    def only(self, places: np.ndarray) -> "ImageBoxes":
        return replace(self, corners=self.corners[places], labels=self.labels[places], scores=self.scores[places])

    def surest(self, settings: Any) -> "ImageBoxes":
        """Returns the `num_regions` boxes with the highest scores, at least `score_threshold`, in descending order."""
        order = np.argsort(-self.scores, kind="stable")
        return self.only(order[self.scores[order] >= settings.score_threshold][: settings.num_regions])

    def have_area(self, width: float, height: float) -> np.ndarray:
        """Returns a mask `(N,)` of the boxes that have an area inside an image of this size."""
        clipped = self.corners.clip(0, np.array(self.size or (width, height), np.float32)[[0, 1, 0, 1]])
        return np.all(clipped[:, 2:] > clipped[:, :2], axis=1)

    def fitted(self, width: int, height: int, name: str, skip_errors: bool = False) -> "ImageBoxes":
        """Returns the boxes clipped to their image and divided by its width and height.

        Raises a DataError if the box file has another size for the image, and for boxes without area in the image;
        `skip_errors` leaves these out with a warning.
        """
        if self.size not in (None, SHARES, (width, height)):
            raise DataError(f"{name} has {width} x {height} pixels, but its boxes are for {self.size} pixels.")
        have_area = self.have_area(width, height)
        if not have_area.all():
            problem = f"{name} has boxes outside of it or without area: {self.corners[~have_area].tolist()}"
            logger.warning(note_of_left_out(problem, skip_errors))
        shares = (self.corners / np.array(self.size or (width, height), np.float32)[[0, 1, 0, 1]]).clip(0, 1)
        return replace(self, corners=shares, size=SHARES).only(have_area)

    @property
    def stamp(self) -> FileStamp:
        content = json.dumps([self.corners.tolist(), self.labels.tolist(), self.scores.tolist()])
        return stamp_of_content(content.encode(), 0)


NO_BOXES = ImageBoxes.of([], [], [])


def boxes_of_images(
    path: str | os.PathLike, images: Sequence[tuple], settings: Any, skip_errors: bool = False
) -> tuple[list[ImageBoxes], list[str]]:
    """Returns the boxes of images from a file, in descending order of scores, and notes about unmatched ones.

    Args:
        path: file or folder for [`read_boxes`].
        images: id (or None) and file name of each image. Images are matched by full names, by names without suffix, by
            names without suffix and folders, or by ids; the first way with a match is used.
        settings: a configuration with `num_regions` (maximum number of boxes per image) and `score_threshold`.
        skip_errors: whether boxes without area in their image are left out and counted; otherwise they are an error.

    Raises:
        DataError: the file cannot be read, no image matches, a match is ambiguous, or a box has no area.
    """
    detections = read_boxes(path)
    matched = match_boxes(detections, images, path)
    notes, faults, chosen = [], [], []
    for image, boxes in zip(images, matched, strict=True):
        have_area = boxes.have_area(math.inf, math.inf)
        faults += [f"{image[1]} {corners.tolist()}" for corners in boxes.corners[~have_area]]
        chosen.append(boxes.only(have_area).surest(settings))
    if faults:
        problem = f"{path}: {len(faults)} boxes are outside of their images or have no area: {listing(faults)}"
        notes.append(note_of_left_out(problem, skip_errors))
    used = set(map(id, matched))
    if unused := [boxes.name or boxes.image_id for boxes in detections if id(boxes) not in used]:
        notes.append(f"{path} also has boxes of {len(unused)} other images: {listing(unused)}.")
    if bare := [image[1] for image, boxes in zip(images, chosen, strict=True) if not len(boxes.corners)]:
        notes.append(f"{len(bare)} images have no box in {path}; the whole image is used: {listing(bare)}.")
    return chosen, notes


def match_boxes(detected: Sequence[ImageBoxes], images: Sequence[tuple], path: str | os.PathLike) -> list[ImageBoxes]:
    for key in KEYS:
        by_key: dict[Any, list[ImageBoxes]] = defaultdict(list)
        for boxes in detected:
            by_key[key(boxes.name, boxes.image_id)].append(boxes)
        by_key.pop(None, None)
        image_keys = [key(image[1], image[0]) for image in images]
        counts = Counter(image_keys)
        if matched := counts.keys() & by_key.keys():
            if twice := [name for name in matched if counts[name] > 1 or len(by_key[name]) > 1]:
                raise DataError(f"{path}: several images have the name {listing(sorted(twice))}; give full paths.")
            are_places = key is KEYS[-1] and [image[0] for image in images] == [*range(len(images))]
            if are_places and (other := by_key.keys() - counts.keys()):  # such as ids counted from 1
                raise DataError(f"{path}: {listing(sorted(other))} are not ids of images; ids count images from 0.")
            return [by_key[name][0] if name in matched else NO_BOXES for name in image_keys]
    sources = listing([boxes.name or boxes.image_id for boxes in detected]) or "none"
    raise DataError(f"{path} has no boxes for {listing([image[1] for image in images])}; its images are {sources}.")


def read_boxes(path: str | os.PathLike) -> list[ImageBoxes]:
    """Reads the boxes of each image, with labels and scores (1 if there are no scores).

    Args:
        path: COCO annotations or results; a table (CSV, Parquet, JSON lines) with the columns `image` (name or id),
            `box` or `x1`, `y1`, `x2`, `y2`, and optionally `label` and `score`; or a folder of YOLO text files (lines
            of class, x, y, width, height and optionally a score), optionally with class names in `classes.txt`. Boxes
            are in pixels of the upright image. Boxes of YOLO, and of files without a value above 2, are relative to
            the sides of the image.

    Raises:
        DataError: the file has another format, or has an invalid box.
    """
    path = Path(path)
    if path.is_dir():
        rows = rows_of_yolo(path)
    else:
        read = METADATA_READERS.get(path.suffix.lower())
        rows = rows_of_coco(read_json(path), path) if read is None else rows_of_table(read(path), path)
    by_image: dict[tuple, list[tuple]] = defaultdict(list)
    for image, where, values, label, origin in rows:
        try:
            x, y, right, bottom, score = map(float, [*values, 1.0] if len(values) == 4 else values)
            corners = [x, y, right, bottom]
            if origin is not None:  # the last two numbers are width and height
                corners = [x - origin * right, y - origin * bottom, x + (1 - origin) * right, y + (1 - origin) * bottom]
        except (TypeError, ValueError):
            corners, score = [], math.nan
        if not math.isfinite(sum(corners) + score):
            raise DataError(f"{where}: a box must be four numbers and an optional score, not {values!r:.80}.")
        by_image[image].append((corners, score, label))
    all_boxes = [
        ImageBoxes.of(*zip(*rows_of_image, strict=True), size, name if isinstance(name, str) else None, image_id)
        for (name, image_id, size), rows_of_image in by_image.items()
    ]
    are_shares = max((boxes.corners.max() for boxes in all_boxes), default=0) <= 2
    return [replace(boxes, size=SHARES) if are_shares else boxes for boxes in all_boxes]


Row = tuple[tuple[Any, Any, tuple[int, int] | None], str, list, str, float | None]
"""Name, id and size of an image; and for one of its boxes: position for messages, numbers with an optional score,
label, and the relative position of (x, y) in the box, None for corners."""


def rows_of_coco(document: Any, path: Path) -> Iterator[Row]:
    images: dict[int, Record] = {}
    classes: dict[int, Record] = {}
    if isinstance(document, list):  # results
        rows = [checked_record(f"{path}, row {place}", row) for place, row in enumerate(document)]
    else:
        images, rows = records_by_id(document, "images", path), records_of(document, "annotations", path)
        classes = records_by_id(document, "categories", path) if "categories" in document else {}
    for row in rows:
        number, label = row.identifier("image_id"), str(row.fields.get("category_id", ""))
        name, size = row.fields["image_id"], None
        if not isinstance(document, list):
            image = images[known_id(row, "image_id", images)]
            name, size = image.fields.get("file_name"), image.size() if "width" in image.fields else None
        if classes:
            label = classes[known_id(row, "category_id", classes)].string("name")
        box = row.fields.get("bbox")
        values = [*(box if isinstance(box, list) else [box]), *([row.fields["score"]] if "score" in row.fields else [])]
        yield (name, number, size), row.where, values, label, 0


def rows_of_table(rows: Sequence[dict], path: Path) -> Iterator[Row]:
    for place, row in enumerate(rows):
        image, box = row.get("image", row.get("image_id")), row.get("box")
        if isinstance(box, str):
            box = re.findall(r"[^][(),\s]+", box)
        sides = [row.get(side) for side in ("x1", "y1", "x2", "y2")] if box is None else [*box]
        if image is None or sides[0] is None:
            raise DataError(f"{path} needs the columns image, and box or x1, y1, x2, y2; it has {', '.join(row)}.")
        scores, label = [] if row.get("score") is None else [row["score"]], row.get("label")
        yield (image, image, None), f"{path}, row {place}", sides + scores, "" if label is None else str(label), None


def rows_of_yolo(folder: Path) -> Iterator[Row]:
    files, paths = OwnFiles(folder), sorted(folder.rglob("*.txt"))
    lines_of = {path: Path(files.find(str(path), "YOLO")).read_text(encoding="utf-8").splitlines() for path in paths}
    names = lines_of.pop(folder / "classes.txt", [])
    for file, lines in lines_of.items():
        for place, line in enumerate(lines, 1):
            if not line.strip():
                continue
            label, *values = line.split()
            if label.isdecimal() and int(label) < len(names):
                label = names[int(label)]
            yield (str(file.relative_to(folder)), None, SHARES), f"{file}, line {place}", values, label, 0.5

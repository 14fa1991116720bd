"""Boxes of images from any detector or person, in the files that their tools write, matched with images."""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from .annotations import listing
from .coco_files import Record, known_id, read_json, records_by_id, records_of
from .errors import DataError

SHARES = (1, 1)  # size of an image in the unit of boxes that are shares of its sides


@dataclass(frozen=True)
class ImageBoxes:
    """Boxes of one image, a label and a score for each, and what tells the image."""

    corners: np.ndarray  # `(N, 4)` float32: x1, y1, x2, y2, in pixels of the upright image unless `size` is `SHARES`
    labels: Sequence[str] = ()
    scores: Sequence[float] = ()
    size: tuple[int, int] | None = None  # width and height of the image, if the file has them
    name: str | None = None  # of its file
    image_id: int | str | None = None

    def only(self, places: Iterable[int]) -> "ImageBoxes":
        chosen = list(places)
        labels, scores = ([values[place] for place in chosen] for values in (self.labels, self.scores))
        return replace(self, corners=self.corners[chosen], labels=labels, scores=scores)

    def surest(self, num_regions: int, score_threshold: float) -> "ImageBoxes":
        """Returns the boxes of the highest scores, the surest first; those of equal scores stay in order."""
        order = sorted(range(len(self.scores)), key=lambda place: -self.scores[place])
        return self.only([place for place in order if self.scores[place] >= score_threshold][:num_regions])

    def without_area(self, width: float, height: float) -> np.ndarray:
        """Returns the places of boxes of which nothing lies within an image of this size."""
        clipped = self.corners.clip(0, np.array([width, height] * 2, np.float32))
        return np.flatnonzero(~(clipped[:, 2:] > clipped[:, :2]).all(1))

    def in_shares(self, width: int, height: int, name: str) -> np.ndarray:
        """Returns the boxes `(N, 4)` as shares of width and height of the image, float32 and clipped to it.

        Raises a DataError for a box without area in the image, or if the file of the boxes says another size.
        """
        if self.size not in (None, SHARES, (width, height)):
            raise DataError(f"{name} has {width} x {height} pixels, but its boxes are for {self.size}.")
        width, height = self.size or (width, height)
        if len(wrong := self.without_area(width, height)):
            raise DataError(f"{name} has {len(wrong)} boxes outside of it or without area: {self.shown(wrong)}.")
        return (self.corners / np.array([width, height] * 2, np.float32)).clip(0, 1)

    def shown(self, places: Iterable[int]) -> str:
        return listing([f"[{', '.join(f'{side:g}' for side in self.corners[place])}]" for place in places])


KEYS: tuple[Callable[[Any, Any], str | None], ...] = (  # of an image's file name and id
    lambda name, _: None if name is None else PurePath(name).as_posix(),
    lambda name, _: None if name is None else PurePath(name).with_suffix("").as_posix(),
    lambda name, _: None if name is None else PurePath(name).stem,
    lambda _, number: None if number is None else str(number),
)


def match_boxes(
    found: Sequence[ImageBoxes], names: Sequence[str], ids: Sequence[int | None], path: Path
) -> list[ImageBoxes | None]:
    """Returns the boxes of each image, None for one that the file of boxes does not have.

    Images are matched by their whole names, by names without suffix, by names without folders too, or by ids: by the
    first of these that matches any. A DataError names images that this would confuse, or says that none is matched.
    """
    for key in KEYS:
        by_key: dict[str | None, list[ImageBoxes]] = defaultdict(list)
        for boxes in found:
            by_key[key(boxes.name, boxes.image_id)].append(boxes)
        by_key.pop(None, None)
        wanted = [key(*image) for image in zip(names, ids, strict=True)]
        matched = [name for name in wanted if name in by_key]
        if not matched:
            continue
        if twice := {name for name in matched if len(by_key[name]) > 1 or (matched.count(name) > 1)}:
            raise DataError(f"{path}: {len(twice)} names are of several images ({listing(sorted(twice))}).")
        return [by_key[name][0] if name in by_key else None for name in wanted]
    theirs = listing([boxes.name or boxes.image_id for boxes in found])
    raise DataError(f"{path} has boxes of none of the images: it has {theirs}, and the images are {listing(names)}.")


def boxes_of_images(
    path: str | os.PathLike,
    names: Sequence[str],
    ids: Sequence[int | None],
    num_regions: int = 36,
    score_threshold: float = 0.0,
    skip_errors: bool = False,
) -> tuple[list[ImageBoxes], list[str]]:
    """Reads a file of boxes; returns those of each image, the surest first, and sentences about the rest.

    Args:
        path: COCO annotations, with a `score` or without.
        names: the file name of each image.
        ids: its id, if it has one.
        num_regions: boxes of an image at most.
        score_threshold: boxes with a lower score are left out.
        skip_errors: whether boxes without area are left out and counted; otherwise they are an error.

    Raises:
        DataError: the file cannot be read, it has none of the images, or boxes without area in their image.
    """
    path = Path(path)
    found = boxes_of_coco(read_json(path), path)
    own = match_boxes(found, names, ids, path)
    notes, faults, chosen = [], [], []
    for name, boxes in zip(names, own, strict=True):
        boxes = boxes or ImageBoxes(np.zeros((0, 4), np.float32), size=SHARES)
        wrong = boxes.without_area(*(boxes.size or (math.inf, math.inf)))
        if len(wrong):
            faults.append(f"{name} {boxes.shown(wrong)}")
            boxes = boxes.only(place for place in range(len(boxes.corners)) if place not in wrong)
        chosen.append(boxes.surest(num_regions, score_threshold))
    if faults:
        told = f"{path}: {len(faults)} images have boxes outside of them or without area: {listing(faults)}"
        if not skip_errors:
            raise DataError(f"{told} (--skip-errors leaves them out).")
        notes.append(f"{told}; they were left out.")
    used = {id(boxes) for boxes in own}
    if unused := [boxes.name or boxes.image_id for boxes in found if id(boxes) not in used]:
        notes.append(f"{path}: {len(unused)} of its images are not among the images: {listing(unused)}.")
    if bare := [name for name, boxes in zip(names, chosen, strict=True) if not len(boxes.corners)]:
        notes.append(f"{path}: {len(bare)} images have no box and keep the whole image: {listing(bare)}.")
    return chosen, notes


def boxes_of_coco(document: Any, path: Path) -> list[ImageBoxes]:
    """Returns the boxes of COCO annotations by image."""
    images = records_by_id(document, "images", path)
    classes = records_by_id(document, "categories", path) if "categories" in document else {}
    rows: dict[int, list[Record]] = {number: [] for number in images}
    for annotation in records_of(document, "annotations", path):
        rows[known_id(annotation, "image_id", images)].append(annotation)
    found = []
    for number, image in images.items():
        labels = [classes[known_id(row, "category_id", classes)].string("name") for row in rows[number]]
        name = image.fields.get("file_name")
        size = image.size() if {"width", "height"} <= image.fields.keys() else None
        found.append(gathered(rows[number], labels, size=size, name=name, image_id=number))
    return found


def gathered(rows: Sequence[Record], labels: Sequence[str], **fields: Any) -> ImageBoxes:
    """Returns the boxes of COCO records of one image."""
    corners, scores = np.zeros((len(rows), 4), np.float32), []
    for place, row in enumerate(rows):
        box, score = row.fields.get("bbox"), row.fields.get("score", 1.0)
        if not isinstance(box, list) or len(box) != 4 or not all(is_number(side) for side in box):
            raise row.error("bbox", "must be x, y, width and height in pixels")
        if not is_number(score):
            raise row.error("score", "must be a number")
        corners[place] = box[0], box[1], box[0] + box[2], box[1] + box[3]
        scores.append(float(score))
    return ImageBoxes(corners, list(labels), scores, **fields)


def is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]

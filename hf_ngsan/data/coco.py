"""The reader of `coco-layout:DIR`: regions and captions from `instances_NAME.json` and `captions_NAME.json`.

```python
load_coco_layout("coco/annotations", "val2017")  # a region's feature is its one-hot category
```
"""

import math
from collections import defaultdict
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from .coco_files import Record, images_by_id, in_order, read_json, records_of
from .contract import caption_features, clamp_boxes, widening_note
from .errors import DataError
from .formats.rows import ROUNDING
from .prepared import Rows, fingerprint, prepare
from .readers import find_files


def load_coco_layout(directory: str, split: str) -> Dataset:
    """Loads one split of a folder in COCO's layout as a dataset of the contract.

    The feature of a region is its category, one-hot in the order of the file's `categories`. Boxes are clipped to the
    image. Rows are the images with at least one caption and one box, by image id; captions are in the order of their
    ids, without line breaks and double blanks.

    Args:
        directory: folder with `instances_NAME.json` and `captions_NAME.json`.
        split: NAME; `validation` and `val` mean the same.

    Returns:
        `datasets.Dataset` with `width`, `height`, `split` and `objects`, the category names of the regions. Warnings
        count images that were left out, clipped boxes, and boxes without area, which are widened.

    Raises:
        DataError: a file is missing, or a field of it is missing or wrong.
    """
    instances, captions = find_files(Path(directory), split, "instances_*.json", "captions_*.json")
    key = fingerprint("coco-layout", split, str(instances), instances, captions)
    return prepare("coco-layout", key, split, lambda: read_layout(instances, captions, split))


def read_layout(instances_path: Path, captions_path: Path, split: str) -> Rows:
    instances, captions_file = read_json(instances_path), read_json(captions_path)
    sizes = {image_id: image.size() for image_id, image in images_by_id(instances, instances_path).items()}
    labels: dict[int, str] = {}
    for category in records_of(instances, "categories", instances_path):
        number = category.integer("id")
        if number in labels:
            raise DataError(f"{category.where}: category id {number} is there twice; category ids must be unique.")
        labels[number] = str(category.fields.get("name", number))
    boxes, indices, clipped = read_regions(records_of(instances, "annotations", instances_path), sizes, list(labels))
    captions, blank = defaultdict(list), 0
    for annotation in in_order(records_of(captions_file, "annotations", captions_path)):
        image_id, text = known_image_id(annotation, sizes), annotation.text("caption")
        if text:
            captions[image_id].append(text)
        blank += not text
    image_ids = sorted(boxes.keys() & captions.keys())
    if not image_ids:
        raise DataError(f"No image has both a box in {instances_path} and a caption in {captions_path}.")
    widened = 0
    for image_id in image_ids:
        boxes[image_id], number = clamp_boxes(boxes[image_id])
        widened += number

    def rows() -> Iterator[dict[str, Any]]:
        one_hot, names = np.eye(len(labels), dtype=np.float16), list(labels.values())
        for image_id in image_ids:
            width, height = sizes[image_id]
            yield {
                "image_id": image_id,
                "visual_features": one_hot[indices[image_id]],
                "visual_boxes": boxes[image_id],
                "captions": captions[image_id],
                "width": width,
                "height": height,
                "split": split,
                "objects": [names[index] for index in indices[image_id]],
            }

    notes = []
    without_boxes, without_captions = len(sizes.keys() - boxes.keys()), len(sizes.keys() - captions.keys())
    if without_boxes or without_captions:
        notes.append(
            f"{instances_path}: {len(sizes) - len(image_ids)} of {len(sizes)} images were left out"
            f" ({without_boxes} without a box, {without_captions} without a caption)."
        )
    if blank:
        notes.append(f"{captions_path}: {blank} captions without a word were left out.")
    if clipped:
        notes.append(f"{instances_path}: boxes reaching beyond their image were clipped to it: {clipped}.")
    if widened:
        notes.append(widening_note(str(instances_path), widened))
    features = caption_features(len(labels), size=True, split=True, objects=True)
    return Rows(features, rows(), len(image_ids), notes)


def read_regions(
    annotations: list[Record], sizes: dict[int, tuple[int, int]], categories: list[int]
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray], int]:
    """Returns by image id boxes `(N, 4)` as shares of the image, category places `(N,)`; and how many were clipped."""
    places = {category: place for place, category in enumerate(categories)}
    boxes, indices, clipped = defaultdict(list), defaultdict(list), 0
    for annotation in annotations:
        image_id = known_image_id(annotation, sizes)
        if annotation.integer("category_id") not in places:
            raise annotation.error("category_id", "must be that of one of the 'categories'")
        corners, beyond = clipped_box(annotation, sizes[image_id])
        clipped += beyond
        boxes[image_id].append(corners)
        indices[image_id].append(places[annotation.fields["category_id"]])
    return (
        {image_id: np.array(corners, dtype=np.float32) for image_id, corners in boxes.items()},
        {image_id: np.array(of_image) for image_id, of_image in indices.items()},
        clipped,
    )


def clipped_box(annotation: Record, size: tuple[int, int]) -> tuple[list[float], bool]:
    """Returns a box's corners as shares of its image, clipped to it, and whether more than rounding was clipped."""
    box = annotation.fields.get("bbox")
    error = annotation.error(
        "bbox", f"must be x, y, width, height in pixels of a box in its image of {size[0]} x {size[1]}"
    )
    if (
        not isinstance(box, list)
        or len(box) != 4
        or not all(type(side) in (int, float) and math.isfinite(side) for side in box)
    ):
        raise error
    left, top, right, bottom = box[0], box[1], box[0] + box[2], box[1] + box[3]
    if min(*box[2:], right, bottom) < 0 or left > size[0] or top > size[1]:
        raise error
    overshoot = max(-left, -top, right - size[0], bottom - size[1])
    corners = [left / size[0], top / size[1], right / size[0], bottom / size[1]]
    return [min(max(side, 0.0), 1.0) for side in corners], overshoot > ROUNDING


def known_image_id(annotation: Record, sizes: Container[int]) -> int:
    """Returns the id of an annotation's image, which must be among those of the instances file."""
    if annotation.integer("image_id") not in sizes:
        raise annotation.error("image_id", "must be that of one of the 'images' of the instances file")
    return annotation.fields["image_id"]

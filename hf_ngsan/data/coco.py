"""The reader of `coco-layout:DIR`: regions and captions from `instances_NAME.json` and `captions_NAME.json`.

```python
load_coco_layout("coco/annotations", "val2017")  # a region's feature is its one-hot category
```
"""

import sys
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from .coco_files import Record, images_by_id, in_order, read_json, records_of
from .contract import caption_features, clamp_boxes, widening_note
from .errors import DataError
from .formats.conventions import ROUNDING
from .prepared import Rows, fingerprint, prepare
from .splits import find_files


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
    labels, indices = read_categories(instances, instances_path)
    boxes, categories, clipped = read_regions(instances, instances_path, sizes, indices)
    captions, blank = read_captions(captions_file, captions_path, sizes)
    image_ids = sorted(boxes.keys() & captions.keys())
    if not image_ids:
        raise DataError(f"No image has both a box in {instances_path} and a caption in {captions_path}.")

    widened = 0
    for image_id in image_ids:
        boxes[image_id], number = clamp_boxes(boxes[image_id])
        widened += number

    def rows() -> Iterator[dict[str, Any]]:
        one_hot = np.eye(len(labels), dtype=np.float16)
        for image_id in image_ids:
            width, height = sizes[image_id]
            yield {
                "image_id": image_id,
                "visual_features": one_hot[categories[image_id]],
                "visual_boxes": boxes[image_id],
                "captions": captions[image_id],
                "width": width,
                "height": height,
                "split": split,
                "objects": [labels[index] for index in categories[image_id]],
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


def read_categories(content: object, path: Path) -> tuple[list[str], dict[int, int]]:
    """Returns the names of the categories in the file's order, and the place of each category id in it."""
    labels: list[str] = []
    indices: dict[int, int] = {}
    for category in records_of(content, "categories", path):
        category_id = category.integer("id")
        if category_id in indices:
            raise DataError(f"{category.where}: category id {category_id} is there twice; category ids must be unique.")
        indices[category_id] = len(labels)
        labels.append(category.string("name") if "name" in category.fields else str(category_id))
    if not labels:
        raise DataError(f"{path}: 'categories' is empty; it must list the categories of the boxes.")
    return labels, indices


def read_regions(
    content: object, path: Path, sizes: Mapping[int, tuple[int, int]], indices: Mapping[int, int]
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray], int]:
    """Returns by image id boxes `(N, 4)` as shares of the image, category places `(N,)`; and how many were clipped."""
    boxes, categories, clipped = defaultdict(list), defaultdict(list), 0
    for annotation in records_of(content, "annotations", path):
        image_id, category_id = known_image_id(annotation, sizes), annotation.integer("category_id")
        if category_id not in indices:
            raise DataError(
                f"{annotation.where}: category_id {category_id} is not in 'categories'; add it or remove the box."
            )
        box, beyond = clipped_box(annotation.fields.get("bbox"), sizes[image_id], annotation.where)
        clipped += beyond
        boxes[image_id].append(box)
        categories[image_id].append(indices[category_id])
    return (
        {image_id: np.array(rows, dtype=np.float32) for image_id, rows in boxes.items()},
        {image_id: np.array(row) for image_id, row in categories.items()},
        clipped,
    )


def clipped_box(box: Any, size: tuple[int, int], where: str) -> tuple[list[float], bool]:
    """Returns a box's corners as shares of its image, clipped to it, and whether more than rounding was clipped."""
    if not (isinstance(box, list) and len(box) == 4 and all(type(side) in (int, float) for side in box)):
        raise DataError(f"{where}: bbox is {box!r}; it must be four numbers x, y, width, height in pixels.")
    if not all(abs(side) <= sys.float_info.max for side in box):
        raise DataError(f"{where}: bbox is {box}, which is not finite; correct or remove the box.")
    left, top, width, height = box
    if width < 0 or height < 0:
        raise DataError(f"{where}: bbox is {box}, inverted; its width and height must not be negative.")
    right, bottom = left + width, top + height
    if right < 0 or bottom < 0 or left > size[0] or top > size[1]:
        raise DataError(
            f"{where}: bbox is {box}, outside its image of {size[0]} x {size[1]} pixels; correct or remove the box."
        )
    overshoot = max(-left, -top, right - size[0], bottom - size[1])
    corners = [left / size[0], top / size[1], right / size[0], bottom / size[1]]
    return [min(max(side, 0.0), 1.0) for side in corners], overshoot > ROUNDING


def read_captions(content: object, path: Path, sizes: Container[int]) -> tuple[dict[int, list[str]], int]:
    """Returns captions by image id in the order of their annotation ids, and how many were blank."""
    captions, blank = defaultdict(list), 0
    for annotation in in_order(records_of(content, "annotations", path)):
        image_id, text = known_image_id(annotation, sizes), annotation.text("caption")
        if text:
            captions[image_id].append(text)
        else:
            blank += 1
    return captions, blank


def known_image_id(annotation: Record, sizes: Container[int]) -> int:
    """Returns the id of an annotation's image, which must be among those of the instances file."""
    image_id = annotation.integer("image_id")
    if image_id not in sizes:
        raise DataError(
            f"{annotation.where}: image_id {image_id} is not among the 'images' of the instances file; add the image."
        )
    return image_id

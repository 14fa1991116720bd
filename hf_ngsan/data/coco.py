"""The COCO layout: `instances_NAME.json` and `captions_NAME.json`."""

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from .errors import DataError

_ALIASES = {"validation": "val", "val": "validation"}
_LARGEST_INTEGER = 2**63 - 1
_ROUNDING = 1.0  # pixels by which COCO's own boxes may reach beyond their image


def load_coco_layout(directory, split):
    """Load one split of a folder in COCO's layout as a data set of the contract.

    The feature of a region is its category, one-hot in the order of the file's `categories`. Boxes are clipped to the
    image. Rows are the images with at least one caption and one box, by image id; captions are in the order of their
    ids, their line breaks and stray blanks removed.

    Args:
        directory: folder with `instances_NAME.json` and `captions_NAME.json`.
        split: NAME; `validation` and `val` mean the same.

    Returns:
        `datasets.Dataset` with `width`, `height`, `split` and `objects`, the category names of the regions. Warnings
        count what was left out, what was clipped, and the boxes without area, which are widened.

    Raises:
        DataError: a file is missing, or its content is not what it should be.
    """
    from .prepared import fingerprint, prepare

    instances, captions = _find_files(Path(directory), split)
    key = fingerprint("coco-layout", split, str(instances), instances, captions)
    return prepare("coco-layout", key, split, lambda: _read_layout(instances, captions, split))


def _find_files(directory, split):
    if not directory.is_dir():
        raise DataError(f"{directory} is not a folder; give the one with instances_*.json and captions_*.json.")
    kinds = ("instances", "captions")
    found = {kind: {path.stem.removeprefix(f"{kind}_") for path in directory.glob(f"{kind}_*.json")} for kind in kinds}
    for name in (split, _ALIASES.get(split, split)):
        having = [kind for kind in kinds if name in found[kind]]
        if len(having) == 2:
            return [directory / f"{kind}_{name}.json" for kind in kinds]
        if having:
            missing = next(kind for kind in kinds if kind not in having)
            raise DataError(f"{directory}: {missing}_{name}.json is missing beside {having[0]}_{name}.json; add it.")
    splits = ", ".join(sorted(found["instances"] & found["captions"]))
    if not splits:
        raise DataError(f"{directory} holds no pair of instances_NAME.json and captions_NAME.json.")
    raise DataError(f"{directory} has no split {split!r}; there are {splits}.")


def _read_layout(instances_path, captions_path, split):
    from .contract import caption_features, clamp_boxes, widening_note
    from .prepared import Rows

    instances, captions_file = _load_json(instances_path), _load_json(captions_path)
    sizes = _read_sizes(instances, instances_path)
    labels, indices = _read_categories(instances, instances_path)
    boxes, categories, clipped = _read_regions(instances, instances_path, sizes, indices)
    captions, blank = _read_captions(captions_file, captions_path, sizes)
    image_ids = sorted(boxes.keys() & captions.keys())
    if not image_ids:
        raise DataError(f"No image has both a box in {instances_path} and a caption in {captions_path}.")

    widened = 0
    for image_id in image_ids:
        boxes[image_id], number = clamp_boxes(boxes[image_id])
        widened += number

    def rows():
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


def _read_sizes(content, path):
    """Width and height in pixels by image id."""
    sizes = {}
    for where, image in _records(content, "images", path):
        image_id = _integer(image, "id", where)
        if image_id in sizes:
            raise DataError(f"{where}: image id {image_id} is there twice; image ids must be unique.")
        sizes[image_id] = _integer(image, "width", where), _integer(image, "height", where)
        if not all(1 <= side < 2**31 for side in sizes[image_id]):
            raise DataError(f"{where}: width and height are {sizes[image_id]}; they must be numbers of pixels.")
    return sizes


def _read_categories(content, path):
    """Names of the categories in the file's order, and the place of each category id in it."""
    labels, indices = [], {}
    for where, category in _records(content, "categories", path):
        category_id = _integer(category, "id", where)
        if category_id in indices:
            raise DataError(f"{where}: category id {category_id} is there twice; category ids must be unique.")
        indices[category_id] = len(labels)
        labels.append(str(category.get("name", category_id)))
    if not labels:
        raise DataError(f"{path}: 'categories' is empty; it must list the categories of the boxes.")
    return labels, indices


def _read_regions(content, path, sizes, indices):
    """By image id: boxes `(N, 4)` as shares of the image, category places `(N,)`; and how many boxes were clipped."""
    boxes, categories, clipped = defaultdict(list), defaultdict(list), 0
    for where, annotation in _records(content, "annotations", path):
        image_id, category_id = (_integer(annotation, field, where) for field in ("image_id", "category_id"))
        _check_image(image_id, sizes, where)
        if category_id not in indices:
            raise DataError(f"{where}: category_id {category_id} is not in 'categories'; add it or remove the box.")
        box, beyond = _corners(annotation, sizes[image_id], where)
        clipped += beyond
        boxes[image_id].append(box)
        categories[image_id].append(indices[category_id])
    return (
        {image_id: np.array(rows, dtype=np.float32) for image_id, rows in boxes.items()},
        {image_id: np.array(row) for image_id, row in categories.items()},
        clipped,
    )


def _corners(annotation, size, where):
    """The box as shares of the image, clipped to it, and whether more than rounding was clipped."""
    box = annotation.get("bbox")
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
    return [min(max(side, 0.0), 1.0) for side in corners], overshoot > _ROUNDING


def _read_captions(content, path, sizes):
    """Captions by image id in the order of their annotation ids, and how many were blank."""
    captions, blank = defaultdict(list), 0
    for where, annotation in _records(content, "annotations", path):
        image_id, caption_id = (_integer(annotation, field, where) for field in ("image_id", "id"))
        _check_image(image_id, sizes, where)
        caption = annotation.get("caption")
        if not isinstance(caption, str):
            raise DataError(f"{where}: caption is {caption!r}; it must be a string.")
        caption = " ".join(caption.split())
        if any("\ud800" <= character <= "\udfff" for character in caption):
            raise DataError(f"{where}: caption is {caption!r}, which holds half of a character; correct it.")
        if caption:
            captions[image_id].append((caption_id, caption))
        else:
            blank += 1
    in_order = {
        image_id: [text for _, text in sorted(pairs, key=lambda pair: pair[0])] for image_id, pairs in captions.items()
    }
    return in_order, blank


def _load_json(path):
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); it must be a COCO annotation file.") from None
    except RecursionError:
        raise DataError(f"{path} holds lists within lists without end; it must be a COCO annotation file.") from None
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path} is not valid JSON (line {error.lineno}, column {error.colno}: {error.msg});"
            " it may have been cut, get it again."
        ) from None
    if not isinstance(content, dict):
        kind = "null" if content is None else f"a JSON {type(content).__name__}"
        raise DataError(f"{path} holds {kind}; a COCO annotation file is one object with lists in it.")
    return content


def _records(content, key, path):
    """The objects of a list in a COCO file, each with a name for error messages."""
    if not isinstance(content.get(key), list):
        raise DataError(f"{path} has no list {key!r}; a COCO annotation file must have it.")
    for index, record in enumerate(content[key]):
        where = f"{path}, {key}[{index}]"
        if not isinstance(record, dict):
            raise DataError(f"{where} is {record!r}; it must be an object.")
        yield where, record


def _integer(record, field, where):
    value = record.get(field)
    if isinstance(value, bool) or not isinstance(value, int):
        problem = f"is {value!r}" if field in record else "is missing"
        raise DataError(f"{where}: {field} {problem}; it must be an integer.")
    if not -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER:
        raise DataError(f"{where}: {field} is {value}, which is beyond 64 bits; give a smaller one.")
    return value


def _check_image(image_id, sizes, where):
    if image_id not in sizes:
        raise DataError(f"{where}: image_id {image_id} is not among the 'images' of the instances file; add the image.")

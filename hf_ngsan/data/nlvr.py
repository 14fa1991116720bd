"""The reader of `nlvr:DIR`: statements, true or false, about pictures of items in three boxes (Suhr et al. 2017).

```python
load_nlvr("nlvr", "dev")[0]["question"]  # a statement such as "There is a box with a black circle."
```
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Image, List, Value

from .coco_files import Record, read_json_lines
from .contract import lists_of_vectors
from .errors import DataError, naming_damage
from .prepared import Rows, fingerprint, prepare
from .readers import names_of_split

WIDTH, HEIGHT, SIDE, GAP, NUM_BOXES = 400, 100, 100, 50, 3
"""Sizes of a picture and its three boxes, in pixels, as the authors drew them."""
KINDS = ("square", "circle", "triangle", "box")
COLOURS = {"Black": "black", "Yellow": "yellow", "#0099ff": "blue"}
SIZES = {10: "small", 20: "medium", 30: "large"}
LABELS = ("true", "false")
PART = re.compile(r"(?P<name>.+?)(?P<sign>[/-])(?P<directory>\d+)")
IDENTIFIER = re.compile(r"(\d{1,9})-(\d{1,3})")


def load_nlvr(
    directory: str, split: str, positions: bool = False, regions: bool = True, images: bool = False
) -> Dataset:
    """Loads one split, or a part of it, with the structured scenes as regions.

    The regions of a picture are its items and its three grey boxes. The feature of a region is one-hot: its kind
    (square, circle, triangle, box), its colour and its size. Its place is only in `visual_boxes`.

    Args:
        directory: folder with the JSON lines `NAME/NAME.json`.
        split: NAME (`validation` and `val` mean `dev`); `NAME/5` for its examples in directory 5 alone, `NAME-5` for
            those in all other directories. The up to four pictures of a statement are in one directory.
        positions: whether the feature of a region also has the four numbers of its box.
        regions: False replaces the scene by one blank region, to measure how much the statement alone reveals.
        images: whether rows have the column `image`, which needs the pictures.

    Returns:
        `datasets.Dataset` with `question` (the statement), `answers` (`["true"]` or `["false"]`), `question_id` and
        `image_id` (1000 n + m of the identifier n-m), features, boxes, `objects` (names of the regions), `width`,
        `height` and `split`.

    Raises:
        DataError: there is no such split, or a line or picture of it cannot be used.
    """
    file, sign, part = find_part(Path(directory), split)
    key = fingerprint("nlvr", split, str(file.absolute()), positions, regions, images, file)

    def make() -> Rows:
        return read_examples(file, split, sign, part, positions=positions, regions=regions, images=images)

    return prepare("nlvr", key, split, make)


def find_part(directory: Path, split: str) -> tuple[Path, str, str]:
    """Returns the file of a split and, for a part such as `dev/5` or `dev-5`, the sign and the directory."""
    readings = [(split, "", "")]
    if match := PART.fullmatch(split):
        readings.append((match["name"], match["sign"], match["directory"]))
    for base, sign, part in readings:
        for name in names_of_split(base):
            if (directory / name / f"{name}.json").is_file():
                return directory / name / f"{name}.json", sign, part
    known = ", ".join(sorted(file.parent.name for file in directory.glob("*/*.json") if file.stem == file.parent.name))
    raise DataError(f"{directory} has no split {split!r}; there are {known or 'none, such as dev/dev.json'}.")


def read_examples(file: Path, split: str, sign: str, part: str, positions: bool, regions: bool, images: bool) -> Rows:
    examples = []
    for record in read_json_lines(file):
        with naming_damage(record.where):
            examples.append(read_example(record))
    if sign:
        examples = [example for example in examples if (example["directory"] == part) == (sign == "/")]
    if not examples:
        raise DataError(f"{file} has no examples in the split {split!r}; its directories are numbers such as 0.")
    feature_size = len(KINDS) + len(COLOURS) + len(SIZES) + 4 * positions
    columns = {
        "question_id": Value("int64"),
        "image_id": Value("int64"),
        "question": Value("string"),
        "answers": List(Value("string")),
        "visual_features": lists_of_vectors(feature_size, "float32"),
        "visual_boxes": lists_of_vectors(4, "float32"),
        "objects": List(Value("string")),
        "width": Value("int32"),
        "height": Value("int32"),
        "split": Value("string"),
    }
    if images:
        columns["image"] = Image()

    def rows() -> Iterator[dict[str, Any]]:
        for example in examples:
            features, boxes, names = scene_regions(example["items"]) if regions else blank_region()
            if positions:
                features = np.concatenate([features, boxes], axis=1)
            row = {name: example[name] for name in ("question_id", "image_id", "question", "answers")}
            row |= {"visual_features": features, "visual_boxes": boxes, "objects": names}
            row |= {"width": WIDTH, "height": HEIGHT, "split": split}
            if images:
                # with the boxes in the order of the structured scene
                picture = f"images/{example['directory']}/{file.stem}-{example['identifier']}-0.png"
                row["image"] = {"bytes": (file.parent / picture).read_bytes(), "path": None}
            yield row

    return Rows(Features(columns), rows(), len(examples))


def read_example(record: Record) -> dict[str, Any]:
    match = IDENTIFIER.fullmatch(record.string("identifier"))
    boxes = record.fields["structured_rep"]
    if match is None or len(boxes) != NUM_BOXES or record.fields["label"] not in LABELS:
        raise DataError(
            f"{record.where}: an example has an identifier such as 12-0, a label true or false, and {NUM_BOXES} boxes."
        )
    number = int(match[1]) * 1000 + int(match[2])
    return {
        "question_id": number,
        "image_id": number,
        "question": record.string("sentence"),
        "answers": [record.fields["label"]],
        "identifier": match[0],
        "directory": str(record.fields["directory"]),
        "items": [read_item(item, box) for box, items in enumerate(boxes) for item in items],
    }


def read_item(item: dict[str, Any], box: int) -> tuple[str, str, int, np.ndarray]:
    """Returns kind, colour, size and box, in pixels of the picture, of an item in one of the three boxes."""
    left, top, size = item["x_loc"] + box * (SIDE + GAP), item["y_loc"], item["size"]
    return item["type"], item["color"], size, np.array([left, top, left + size, top + size])


def scene_regions(items: list[tuple[str, str, int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Returns features, boxes and names of the items and of the three boxes around them."""
    features = np.zeros((len(items) + NUM_BOXES, len(KINDS) + len(COLOURS) + len(SIZES)), dtype=np.float32)
    corners, names = [], []
    for row, (kind, colour, size, corner) in enumerate(items):
        features[row, KINDS.index(kind)] = 1
        features[row, len(KINDS) + list(COLOURS).index(colour)] = 1
        features[row, len(KINDS) + len(COLOURS) + list(SIZES).index(size)] = 1
        corners.append(corner)
        names.append(f"{SIZES[size]} {COLOURS[colour]} {kind}")
    for box in range(NUM_BOXES):
        features[len(items) + box, KINDS.index("box")] = 1
        corners.append(np.array([box * (SIDE + GAP), 0, box * (SIDE + GAP) + SIDE, HEIGHT]))
        names.append("box")
    boxes = np.stack(corners).astype(np.float32) / np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], dtype=np.float32)
    return features, boxes, names


def blank_region() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Returns feature, box and name of one region without content: the whole picture."""
    size = len(KINDS) + len(COLOURS) + len(SIZES)
    return np.zeros((1, size), dtype=np.float32), np.array([[0, 0, 1, 1]], dtype=np.float32), ["picture"]

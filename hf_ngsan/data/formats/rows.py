"""Rows of the feature contract from records of feature files: ids, boxes of any convention, columns, Arrow tables.

```python
contract_boxes(np.array([[50, 20, 100, 40]]), (200, 100), "xywh", "image 1")  # [[0.25, 0.2, 0.75, 0.6]]
```
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Features, Value

from ..annotations import AnnotatedImage, Annotations
from ..boxes import BOX_TOLERANCE, cell_boxes
from ..coco_files import number_of
from ..contract import caption_features, check_row
from ..errors import DataError
from . import ORDERS
from .sources import Entry, FeatureRecord, ImageRecord, Source

FORMAT = 2
"""Version of conversion.json."""
ROUNDING = 1.0
"""Pixels by which a box may reach beyond its image, as boxes of COCO do; `BOX_TOLERANCE` is for normalized boxes."""
MAX_GUESSED_SIDE = 65_535
"""Pixels of a side of an image whose size is unknown: the most that JPEG can hold."""


class LeftOutError(DataError):
    """An image without a record in the annotations."""


@dataclass
class ImageIds:
    """Ids of images: the numbers in their names or, where the names of a source are no numbers, their places.

    Attributes:
        sources: all sources, in order.
        seen: ids that are taken.
    """

    sources: Sequence[Source]
    seen: set[int] = field(default_factory=set)

    def of(self, number: int, entry: Entry, name: str) -> int:
        """Returns the id of an entry's image in the source with a number.

        Raises:
            DataError: the id is taken, or the image's name is no number, unlike those before.
        """
        before = sum(source.total for source in self.sources[:number] if not source.is_numbered)
        image_id = number_of(name) if self.sources[number].is_numbered else before + entry.end - 1
        if image_id is None:
            raise DataError(f"{entry.where}: the image is called {name!r}, which is no number.")
        if image_id in self.seen:
            raise DataError(f"{entry.where}: image {image_id} is there twice; image ids must be unique.")
        return image_id


@dataclass
class ConversionPlan:
    """The inputs of a folder of features, and the columns of its rows.

    Attributes:
        key: key of inputs and options; a run with another key starts again.
        inputs: paths of the inputs.
        dtype: type of the stored features.
        has_captions, has_split: whether rows have `captions` and `split`; so if any image of all has.
        is_known: whether the first row was made; it decides the fields below.
        feature_size: D; 0 for images.
        has_boxes, has_sizes, has_names, has_images: whether rows have `visual_boxes`; `width` and `height`;
            `file_name`; `image`.
        guesses_sizes: whether boxes are in pixels and the sizes of images are unknown.
    """

    key: str
    inputs: list[str]
    dtype: str
    has_captions: bool = False
    has_split: bool = False
    is_known: bool = False
    feature_size: int = 0
    has_images: bool = False
    has_boxes: bool = False
    has_sizes: bool = False
    has_names: bool = False
    guesses_sizes: bool = False
    format: int = FORMAT

    @property
    def columns(self) -> Features:
        columns = caption_features(
            max(self.feature_size, 1),
            dtype=self.dtype,
            boxes=self.has_boxes,
            image=self.has_images,
            size=self.has_sizes,
            split=self.has_split,
        )
        if not self.has_captions:
            del columns["captions"]
        if self.has_images:
            del columns["visual_features"]
        if self.has_names:
            columns["file_name"] = Value("string")
        return columns

    @property
    def notes(self) -> list[str]:
        if not self.guesses_sizes:
            return []
        return [
            "The sizes of the images are not known; each image's boxes were divided by the size of the smallest image"
            " that has all of them."
        ]


@dataclass
class RowMaker:
    """Makes rows from records.

    Attributes:
        plan: columns of the rows.
        annotations: annotations of the images, possibly empty.
        convention: convention of the boxes, see [`contract_boxes`].
        grid_size: rows and columns that grids are pooled to; left as they are if None.
        split: split of images without one in the annotations.
    """

    plan: ConversionPlan
    annotations: Annotations
    convention: str | None = None
    grid_size: tuple[int, int] | None = None
    split: str | None = None

    def make_row(
        self, image_id: int, name: str, is_numbered: bool, record: FeatureRecord | ImageRecord, where: str
    ) -> dict[str, Any]:
        """Returns a row of the contract, and completes the plan with the first.

        Args:
            image_id: id of the row.
            name: name of the image in its file.
            is_numbered: whether the id is the name, and not a place.
            record: content of the file.
            where: name of the record in errors.

        Raises:
            DataError: the record is broken, or does not fit the plan.
            LeftOutError: the annotations have no record of this image.
        """
        own_captions = record.captions if isinstance(record, ImageRecord) else ()
        annotated = self.annotated(image_id, name, is_numbered, where, own_captions)
        size = record.size or annotated.size
        split = annotated.split or self.split
        captions = annotated.captions or own_captions
        if isinstance(record, ImageRecord):
            row: dict[str, Any] = {"image": {"bytes": record.content, "path": record.file_name}}
            split = split or record.split
        else:
            row = self.feature_row(record, size, where)
        if self.plan.has_split and split is None:
            raise DataError(f"{where}: the split of the image is unknown; name it with --split.")
        if self.plan.has_captions and not captions:
            raise DataError(f"{where}: the image has no captions, unlike others; leave it out.")
        self.complete(row, size, is_numbered, where)
        if size is not None:
            row["width"], row["height"] = size
        return {**row, "image_id": image_id, "file_name": name, "captions": list(captions), "split": split}

    def annotated(
        self, image_id: int, name: str, is_numbered: bool, where: str, own_captions: tuple[str, ...]
    ) -> AnnotatedImage:
        if not self.annotations:
            return AnnotatedImage({})
        image = self.annotations.find(image_id, name, is_numbered)
        if image is None or (self.annotations.has_captions and not image.captions and not own_captions):
            files = ", ".join(map(str, self.annotations.paths))
            raise LeftOutError(f"{where}: {files} has no {'captions' if image else 'record'} of the image {name}.")
        return image

    def feature_row(self, record: FeatureRecord, size: tuple[int, int] | None, where: str) -> dict[str, Any]:
        features, boxes, grid = record.features, record.boxes, record.grid
        if not features.size:
            raise DataError(f"{where}: the features have shape {features.shape}, which is empty.")
        if grid is not None:
            if self.grid_size is not None and self.grid_size != grid:
                features, grid = pool(features, grid, self.grid_size), self.grid_size
            boxes = cell_boxes(*grid)
        elif boxes is not None:
            boxes = contract_boxes(boxes, size, self.convention, where)
        feature_size = self.plan.feature_size or None
        row = check_row({"visual_features": features, "visual_boxes": boxes}, where=where, feature_size=feature_size)
        with np.errstate(over="ignore"):
            stored = row["visual_features"].astype(self.plan.dtype)
        if not np.isfinite(stored).all():
            raise DataError(
                f"{where}: features reach {np.abs(features).max():g}, which {self.plan.dtype} cannot store; they are"
                " damaged, or need --dtype float32."
            )
        return {**row, "visual_features": stored}

    def complete(self, row: Mapping, size: tuple[int, int] | None, is_numbered: bool, where: str) -> None:
        """Completes the plan with the first row; compares later rows with it."""
        plan = self.plan
        if not plan.is_known:
            plan.is_known = True
            plan.feature_size = row["visual_features"].shape[1] if "visual_features" in row else 0
            plan.has_boxes, plan.has_sizes = "visual_boxes" in row, size is not None
            plan.has_names, plan.has_images = not is_numbered, "image" in row
            plan.guesses_sizes = plan.has_boxes and not plan.has_sizes
        for what, has, had in (
            ("pixels", "image" in row, plan.has_images),
            ("boxes", "visual_boxes" in row, plan.has_boxes),
            ("width and height", size is not None, plan.has_sizes),
            ("name that is no number", not is_numbered, plan.has_names),
        ):
            if has != had:
                raise DataError(
                    f"{where}: the image has {'a ' if has else 'no '}{what}, unlike those before; convert them apart."
                )


def pool(features: np.ndarray, grid: tuple[int, int], grid_size: tuple[int, int]) -> np.ndarray:
    """Returns the cells of a grid pooled by their means to another size, as RSTNet does, float32."""
    import torch

    feature_map = torch.from_numpy(np.array(features.T, dtype=np.float32, order="C")).view(1, -1, *grid)
    return torch.nn.functional.adaptive_avg_pool2d(feature_map, grid_size).flatten(2)[0].T.numpy()


def contract_boxes(
    boxes: np.ndarray, size: tuple[float, float] | None, convention: str | None, where: str
) -> np.ndarray:
    """Returns boxes as `x1, y1, x2, y2` divided by the image's width and height.

    Args:
        boxes: `(N, 4)`.
        size: width and height of the image in pixels; None = those of the smallest image from (0, 0) with all boxes,
            of `MAX_GUESSED_SIDE` pixels a side at most.
        convention: one of `CONVENTIONS`; if None, `xyxy-normalized` where most boxes end within [0, 1], and else
            `xyxy`.
        where: name of the image in errors.

    Returns:
        `(N, 4)`, float32, clipped to [0, 1] after rounding.

    Raises:
        DataError: another shape; a box that is not finite, has no area or leads beyond the image.
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise DataError(f"{where}: boxes have shape {boxes.shape}; it must be (regions, 4).")
    refuse(boxes, ~np.isfinite(boxes), "is not finite", where)
    if convention is None:
        is_normalized = boxes.size and np.median(boxes[:, 2:]) <= 1 + BOX_TOLERANCE  # one wrong box decides nothing
        convention = "xyxy-normalized" if is_normalized else "xyxy"
    order, _, unit = convention.partition("-")
    corners = boxes.astype(np.float64)
    if order != "xyxy":
        start, sides = corners[:, :2], corners[:, 2:]
        start = start - sides / 2 if order == "cxcywh" else start
        corners = np.concatenate([start, start + sides], axis=1)
    hint = f"; in {ORDERS[order]} that is wrong: name the convention of the boxes with --boxes"
    refuse(boxes, corners[:, 2:] <= corners[:, :2], f"has no area{hint}", where)
    tolerance = BOX_TOLERANCE if unit else ROUNDING
    if unit:
        size = (1, 1)
    elif size is None:
        size = np.minimum(np.floor(corners[:, 2:].max(axis=0)) + 1, MAX_GUESSED_SIDE).tolist()
    limits = np.tile(np.asarray(size, dtype=np.float64), 2)
    far = (corners < -tolerance) | (corners > limits + tolerance) | (limits < 1)
    refuse(boxes, far, f"leads beyond the image of {limits[0]:g} x {limits[1]:g}{hint}", where)
    return (corners / limits).clip(0, 1).astype(np.float32)


def refuse(boxes: np.ndarray, wrong: np.ndarray, fault: str, where: str) -> None:
    """Raises a DataError for the first box with any fault."""
    if wrong.any():
        first = int(wrong.any(axis=1).argmax())
        values = ", ".join(f"{number:g}" for number in boxes[first])
        raise DataError(f"{where}: box {first} is [{values}], which {fault}.")


def table_of(rows: Sequence[dict], columns: Features) -> pa.Table:
    """Returns rows of arrays as an Arrow table, without a Python object for each number."""
    schema = columns.arrow_schema
    arrays = [array_of([row[column.name] for row in rows], column.type) for column in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def array_of(values: list, kind: pa.DataType) -> pa.Array:
    """Returns values as an Arrow array; arrays `(N, D)` of any N become lists of vectors."""
    if not isinstance(values[0], np.ndarray):
        return pa.array(values, kind)
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in values])])
    numbers = pa.array(np.concatenate(values).reshape(-1), kind.value_type.value_type)
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), vectors, type=kind)

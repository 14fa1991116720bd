"""Makes rows of the feature contract from records of feature files: ids, columns, boxes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from datasets import Features, Value

from ..annotations import AnnotatedImage, Annotations
from ..coco_files import number_of
from ..contract import BOX_TOLERANCE, ROUNDING, caption_features, cell_boxes, check_row, finite_boxes, refuse_boxes
from ..errors import DataError
from .layouts import Entry, FeatureSource, VisualRecord

FORMAT = 2  # version of conversion.json
MAX_GUESSED_SIDE = 65_535  # maximum side in pixels of an image of unknown size: the maximum of JPEG


class LeftOutError(DataError):
    """An image that has no record in the annotations."""


@dataclass
class ConversionPlan:
    """The inputs of a folder of features, and the columns of its rows; saved as conversion.json.

    A run with another `key` starts from the beginning. The first row determines the fields from `is_known` on.
    `guesses_sizes`: boxes are in pixels and the sizes of images are unknown.
    """

    key: str
    inputs: list[str]
    dtype: str
    has_captions: bool = False
    has_split: bool = False
    is_known: bool = False
    feature_size: int = 0
    has_boxes: bool = False
    has_sizes: bool = False
    has_names: bool = False
    guesses_sizes: bool = False
    format: int = FORMAT

    @property
    def columns(self) -> Features:
        extra = {"boxes": self.has_boxes, "size": self.has_sizes, "split": self.has_split}
        columns = caption_features(max(self.feature_size, 1), dtype=self.dtype, **extra)
        if not self.has_captions:
            del columns["captions"]
        if self.has_names:
            columns["file_name"] = Value("string")
        return columns

    def complete(self, row: Mapping, size: tuple[int, int] | None, is_numbered: bool, where: str) -> None:
        presence = {"has_boxes": "visual_boxes" in row, "has_sizes": size is not None, "has_names": not is_numbered}
        if not self.is_known:
            self.is_known = True
            self.feature_size = row["visual_features"].shape[1]
            self.guesses_sizes = presence["has_boxes"] and size is None
            vars(self).update(presence)
        for name, has in presence.items():
            if has != getattr(self, name):
                what = name.removeprefix("has_")
                raise DataError(f"{where}: it has {'' if has else 'no '}{what}, unlike others; convert it separately.")


@dataclass
class RowMaker:
    """Makes rows from the records of sources, in order; the first row completes the plan."""

    sources: Sequence[FeatureSource]
    plan: ConversionPlan
    annotations: Annotations
    box_order: str = "xyxy"
    grid_size: tuple[int, int] | None = None
    split: str | None = None
    seen: set[int] = field(default_factory=set)  # ids of the images that have rows
    names: set[str] = field(default_factory=set)  # their names if these are not numbers

    def make_row(self, number: int, entry: Entry, name: str, record: VisualRecord) -> dict[str, Any]:
        """Returns a row of the contract; raises a DataError for broken records, repeated ids and differing columns."""
        where = entry.where if entry.name else f"{entry.where} (image {name})"
        is_numbered = self.sources[number].is_numbered
        before = sum(source.total for source in self.sources[:number] if not source.is_numbered)
        image_id = number_of(name) if is_numbered else before + entry.end - 1
        if image_id is None:
            raise DataError(f"{entry.where}: the name of the image is {name!r}, which is not a number.")
        if image_id in self.seen:
            raise DataError(f"{entry.where}: image {image_id} occurs twice; image ids must be unique.")
        annotated = self.annotated(image_id, name, is_numbered, where)
        size, split = record.size or annotated.size, annotated.split or self.split
        row = self.feature_row(record, size, where)
        if self.plan.has_split and split is None:
            raise DataError(f"{where}: the split of the image is unknown; give it with --split.")
        self.plan.complete(row, size, is_numbered, where)
        if size is not None:
            row["width"], row["height"] = size
        self.seen.add(image_id)
        if not is_numbered:
            self.names.add(name)
        captions = list(annotated.captions or ())
        return {**row, "image_id": image_id, "file_name": name, "captions": captions, "split": split}

    def annotated(self, image_id: int, name: str, is_numbered: bool, where: str) -> AnnotatedImage:
        if not self.annotations.paths:
            return AnnotatedImage()
        image = self.annotations.by_id.get(image_id) if is_numbered else self.annotations.by_name.get(name)
        if image is None or (self.annotations.has_captions and not image.captions):
            files = ", ".join(map(str, self.annotations.paths))
            raise LeftOutError(f"{where}: {files} has no {'captions' if image else 'record'} of the image {name}.")
        return image

    def feature_row(self, record: VisualRecord, size: tuple[int, int] | None, where: str) -> dict[str, Any]:
        features, boxes, grid = record.features, record.boxes, record.grid
        if not features.size:
            raise DataError(f"{where}: the features are empty; their shape is {features.shape}.")
        if grid is not None:
            if self.grid_size is not None and self.grid_size != grid:
                features, grid = pool(features, grid, self.grid_size), self.grid_size
            boxes = cell_boxes(*grid)
        elif boxes is not None:
            boxes = contract_boxes(boxes, size, where, self.box_order)
        feature_size = self.plan.feature_size or None
        row = check_row({"visual_features": features, "visual_boxes": boxes}, where=where, feature_size=feature_size)
        with np.errstate(over="ignore"):
            stored = row["visual_features"].astype(self.plan.dtype)
        if not np.isfinite(stored).all():
            largest = np.abs(features).max()
            raise DataError(f"{where}: features reach {largest:g}, beyond {self.plan.dtype}; use --dtype float32.")
        return {**row, "visual_features": stored}


def pool(features: np.ndarray, grid: tuple[int, int], grid_size: tuple[int, int]) -> np.ndarray:
    """Mean-pools the cells of a grid to another size, like RSTNet; float32."""
    import torch

    feature_map = torch.from_numpy(np.array(features.T, dtype=np.float32, order="C")).view(1, -1, *grid)
    return torch.nn.functional.adaptive_avg_pool2d(feature_map, grid_size).flatten(2)[0].T.numpy()


def contract_boxes(boxes: np.ndarray, size: tuple[float, float] | None, where: str, order: str = "xyxy") -> np.ndarray:
    """Returns the corners `(N, 4)` of boxes divided by the image's width and height, float32, clipped to [0, 1]. An
    unknown image size is that of the smallest image from (0, 0) that includes all boxes."""
    boxes = finite_boxes(boxes, where).astype(np.float64)
    if order != "xyxy":
        sides = boxes[:, 2:]
        start = boxes[:, :2] - {"xywh": 0, "cxcywh": 0.5}[order] * sides
        boxes = np.concatenate([start, start + sides], axis=1)
    refuse_boxes(boxes, boxes[:, 2:] <= boxes[:, :2], f"without area as {order}; try another order with --boxes", where)
    tolerance = ROUNDING
    if boxes.size and np.median(boxes[:, 2:]) <= 1 + BOX_TOLERANCE:  # the median is robust against one wrong box
        size, tolerance = (1, 1), BOX_TOLERANCE
    elif size is None:
        size = np.minimum(np.floor(boxes[:, 2:].max(axis=0)) + 1, MAX_GUESSED_SIDE).tolist()
    limits = np.tile(np.asarray(size, dtype=np.float64), 2)
    far = (boxes < -tolerance) | (boxes > limits + tolerance) | (limits < 1)
    refuse_boxes(boxes, far, f"beyond the image of {limits[0]:g} x {limits[1]:g}", where)
    return (boxes / limits).clip(0, 1).astype(np.float32)

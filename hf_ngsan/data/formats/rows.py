"""Rows of the feature contract from records of feature files: ids, columns, boxes."""

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
MAX_GUESSED_SIDE = 65_535  # pixels of a side of an image whose size is unknown: the most that JPEG can hold


class LeftOutError(DataError):
    """An image without a record in the annotations."""


@dataclass
class ConversionPlan:
    """The inputs of a folder of features, and the columns of its rows; conversion.json.

    A run with another `key` starts again. The first row decides the fields from `is_known` on. `guesses_sizes`: boxes
    are in pixels and the sizes of images are unknown.
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
                raise DataError(f"{where}: it has {'' if has else 'no '}{what}, unlike the others; convert them apart.")


@dataclass
class RowMaker:
    """Makes rows from the records of sources, in order; the first completes the plan."""

    sources: Sequence[FeatureSource]
    plan: ConversionPlan
    annotations: Annotations
    box_order: str = "xyxy"
    grid_size: tuple[int, int] | None = None
    split: str | None = None
    seen: set[int] = field(default_factory=set)  # ids of the images that have rows
    names: set[str] = field(default_factory=set)  # their names where these are no numbers

    def make_row(self, number: int, entry: Entry, name: str, record: VisualRecord) -> dict[str, Any]:
        """Returns a row of the contract; a DataError if it is broken, its id is taken or it fits no row before."""
        where = entry.where if entry.name else f"{entry.where} (image {name})"
        is_numbered = self.sources[number].is_numbered
        before = sum(source.total for source in self.sources[:number] if not source.is_numbered)
        image_id = number_of(name) if is_numbered else before + entry.end - 1
        if image_id is None:
            raise DataError(f"{entry.where}: the image is called {name!r}, which is no number.")
        if image_id in self.seen:
            raise DataError(f"{entry.where}: image {image_id} is there twice; image ids must be unique.")
        annotated = self.annotated(image_id, name, is_numbered, where)
        size, split = record.size or annotated.size, annotated.split or self.split
        row = self.feature_row(record, size, where)
        if self.plan.has_split and split is None:
            raise DataError(f"{where}: the split of the image is unknown; name it with --split.")
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
            raise DataError(f"{where}: the features have shape {features.shape}, which is empty.")
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
            raise DataError(f"{where}: features reach {largest:g}, beyond {self.plan.dtype}; try --dtype float32.")
        return {**row, "visual_features": stored}


def pool(features: np.ndarray, grid: tuple[int, int], grid_size: tuple[int, int]) -> np.ndarray:
    """Returns the cells of a grid pooled by their means to another size, as RSTNet does, float32."""
    import torch

    feature_map = torch.from_numpy(np.array(features.T, dtype=np.float32, order="C")).view(1, -1, *grid)
    return torch.nn.functional.adaptive_avg_pool2d(feature_map, grid_size).flatten(2)[0].T.numpy()


def contract_boxes(boxes: np.ndarray, size: tuple[float, float] | None, where: str, order: str = "xyxy") -> np.ndarray:
    """Returns corners `(N, 4)` of boxes, in pixels or not, divided by the image's width and height, float32, clipped to
    [0, 1]; an unknown size is that of the smallest image from (0, 0) with all boxes."""
    boxes = finite_boxes(boxes, where).astype(np.float64)
    if order != "xyxy":
        sides = boxes[:, 2:]
        start = boxes[:, :2] - {"xywh": 0, "cxcywh": 0.5}[order] * sides
        boxes = np.concatenate([start, start + sides], axis=1)
    refuse_boxes(boxes, boxes[:, 2:] <= boxes[:, :2], f"without area as {order}; --boxes names another order", where)
    tolerance = ROUNDING
    if boxes.size and np.median(boxes[:, 2:]) <= 1 + BOX_TOLERANCE:  # one wrong box decides nothing
        size, tolerance = (1, 1), BOX_TOLERANCE
    elif size is None:
        size = np.minimum(np.floor(boxes[:, 2:].max(axis=0)) + 1, MAX_GUESSED_SIDE).tolist()
    limits = np.tile(np.asarray(size, dtype=np.float64), 2)
    far = (boxes < -tolerance) | (boxes > limits + tolerance) | (limits < 1)
    refuse_boxes(boxes, far, f"beyond the image of {limits[0]:g} x {limits[1]:g}", where)
    return (boxes / limits).clip(0, 1).astype(np.float32)

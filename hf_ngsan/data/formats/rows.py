"""Rows of the feature contract from records of feature files, and Arrow tables of the rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Features, Value

from ..boxes import cell_boxes
from ..coco_files import number_of
from ..contract import caption_features, check_row, refuse_long_caption
from ..errors import DataError
from .annotations import AnnotatedImage, Annotations
from .arrays import check_array
from .conventions import contract_boxes
from .record import Entry, FeatureRecord, ImageRecord, Source

FORMAT = 2
"""Version of conversion.json."""


@dataclass
class ImageIds:
    """Ids of images: the numbers in their names or, where the names of a source are no numbers, their places.

    Attributes:
        sources: all sources, in order.
        seen: ids that are taken.
    """

    sources: Sequence[Source]
    seen: set[int] = field(default_factory=set)

    def of(self, number: int, entry: Entry, name: str, where: str) -> int:
        """Returns the id of an entry's image in the source with a number.

        Raises:
            DataError: the id is taken, or the image's name is no number, unlike those before.
        """
        is_numbered = self.sources[number].is_numbered
        before = sum(one.total for one in self.sources[:number] if not one.is_numbered)
        image_id = number_of(name) if is_numbered else before + entry.end - 1
        if image_id is None:
            raise DataError(f"{where}: the image is called {name!r}, which is no number.")
        if image_id in self.seen:
            raise DataError(f"{where}: image {image_id} is there twice; image ids must be unique.")
        return image_id


class LeftOutError(DataError):
    """An image without a record in the annotations."""


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
        refuse_long_caption(max(map(len, captions), default=0), f"{where}: a caption")
        self.complete(row, size, is_numbered, where)
        if size is not None:
            row["width"], row["height"] = size
        return {**row, "image_id": image_id, "file_name": name, "captions": list(captions), "split": split}

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

    def feature_row(self, record: FeatureRecord, size: tuple[int, int] | None, where: str) -> dict[str, Any]:
        features, boxes = self.features_and_boxes(record, size, where)
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

    def features_and_boxes(
        self, record: FeatureRecord, size: tuple[int, int] | None, where: str
    ) -> tuple[np.ndarray, np.ndarray | None]:
        features, grid = record.features, record.grid
        if grid is not None:
            if self.grid_size is not None and self.grid_size != grid:
                check_array((*self.grid_size, features.shape[1]), np.dtype(np.float32), f"{where}, pooled,")
                features, grid = pool(features, grid, self.grid_size), self.grid_size
            return features, cell_boxes(*grid)
        if record.boxes is None:
            return features, None
        return features, contract_boxes(record.boxes, size, self.convention, where)

    def annotated(
        self, image_id: int, name: str, is_numbered: bool, where: str, own_captions: tuple[str, ...]
    ) -> AnnotatedImage:
        if not self.annotations:
            return AnnotatedImage({})
        found = self.annotations.find(image_id, name, is_numbered)
        if found is None or (self.annotations.has_captions and not found.captions and not own_captions):
            files = ", ".join(map(str, self.annotations.paths))
            raise LeftOutError(f"{where}: {files} has no {'captions' if found else 'record'} of the image {name}.")
        return found


def pool(features: np.ndarray, grid: tuple[int, int], grid_size: tuple[int, int]) -> np.ndarray:
    """Returns the cells of a grid pooled by their means to another size, as RSTNet does, float32."""
    import torch

    feature_map = torch.from_numpy(np.array(features.T, dtype=np.float32, order="C")).view(1, -1, *grid)
    return torch.nn.functional.adaptive_avg_pool2d(feature_map, grid_size).flatten(2)[0].T.numpy()


def bytes_of(row: Mapping[str, Any]) -> int:
    """Returns the bytes of a row's arrays and of its image."""
    arrays = sum(value.nbytes for value in row.values() if isinstance(value, np.ndarray))
    return arrays + (len(row["image"]["bytes"]) if "image" in row else 0)


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

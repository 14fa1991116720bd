"""Rows of the contract from records of feature files, and their tables, without a Python object for each number."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from datasets import Features, Value

from ...boxes import cell_boxes
from ..contract import caption_features, check_row
from ..errors import DataError
from .annotations import AnnotatedImage, Annotations
from .conventions import contract_boxes
from .record import FeatureRecord

FORMAT = 1


class LeftOutError(DataError):
    """An image that the annotations are not of."""


@dataclass
class Plan:
    """What the rows of a folder are made of, and what they look like.

    Attributes:
        key: of the inputs and options: a run with others does not resume this one.
        inputs: their paths.
        dtype: of the stored features.
        feature_size: D, known with the first row, as the rest.
        has_boxes, has_sizes, has_names: whether rows have `visual_boxes`; `width` and `height`; `file_name`.
        has_captions, has_split: whether rows have them, which is known before.
        guesses_sizes: whether boxes in pixels are of images whose sizes are not known.
    """

    key: str
    inputs: list[str]
    dtype: str
    feature_size: int = 0
    has_boxes: bool = False
    has_sizes: bool = False
    has_names: bool = False
    has_captions: bool = False
    has_split: bool = False
    guesses_sizes: bool = False
    format: int = field(default=FORMAT)

    @property
    def columns(self) -> Features:
        columns = caption_features(
            self.feature_size, dtype=self.dtype, boxes=self.has_boxes, size=self.has_sizes, split=self.has_split
        )
        if not self.has_captions:
            del columns["captions"]
        return Features({**columns, **({"file_name": Value("string")} if self.has_names else {})})

    @property
    def notes(self) -> list[str]:
        if not self.guesses_sizes:
            return []
        return [
            "The sizes of the images are not known; each image's boxes were divided by the size of the smallest image"
            " that has all of them."
        ]


class RowMaker:
    """Makes rows of records.

    Args:
        plan: what rows look like.
        annotations: of the images, or of none.
        convention: of the boxes, see [`contract_boxes`].
        grid_size: rows and columns that grids are pooled to; left as they are if None.
        split: of images of which the annotations name none.
    """

    def __init__(
        self,
        plan: Plan,
        annotations: Annotations,
        convention: str | None,
        grid_size: tuple[int, int] | None,
        split: str | None,
    ) -> None:
        self.plan, self.annotations, self.split = plan, annotations, split
        self.convention, self.grid_size = convention, grid_size

    def make_row(self, image_id: int, name: str, is_numbered: bool, record: FeatureRecord, where: str) -> dict:
        """Returns a row of the contract, and completes the plan with the first.

        Args:
            image_id: of the row.
            name: of the image in its file.
            is_numbered: whether the id is that name, and not a place.
            record: what the file says.
            where: what to call the record in errors.

        Raises:
            DataError: the record is broken, or does not fit the plan.
            LeftOutError: there are annotations, but not of this image.
        """
        annotated = self.annotated(image_id, name, is_numbered, where)
        size = record.size or annotated.size
        features, boxes = self.features_and_boxes(record, size, where)
        is_first = not self.plan.feature_size
        feature_size = None if is_first else self.plan.feature_size
        row = check_row({"visual_features": features, "visual_boxes": boxes}, where=where, feature_size=feature_size)
        row["visual_features"] = self.stored(row["visual_features"], where)
        if is_first:
            self.plan.feature_size = features.shape[1]
            self.plan.has_boxes, self.plan.has_sizes = boxes is not None, size is not None
            self.plan.has_names = not is_numbered
            self.plan.guesses_sizes = record.boxes is not None and size is None
        for what, has, had in (
            ("boxes", boxes is not None, self.plan.has_boxes),
            ("a width and height", size is not None, self.plan.has_sizes),
            ("a name that is no number", not is_numbered, self.plan.has_names),
        ):
            if has != had:
                raise DataError(
                    f"{where}: the image has {'' if has else 'no '}{what}, unlike those before; convert them apart."
                )
        if size is not None:
            row["width"], row["height"] = size
        row |= {"captions": list(annotated.captions or ()), "split": annotated.split or self.split}
        if self.plan.has_split and row["split"] is None:
            raise DataError(f"{where}: no annotations say of which split the image is; name it with --split.")
        if self.plan.has_names:
            row["file_name"] = name
        row["image_id"] = image_id
        return row

    def features_and_boxes(
        self, record: FeatureRecord, size: tuple[int, int] | None, where: str
    ) -> tuple[np.ndarray, np.ndarray | None]:
        features, grid = record.features, record.grid
        if grid is not None:
            if self.grid_size is not None and self.grid_size != grid:
                features, grid = pool(features, grid, self.grid_size), self.grid_size
            return features, cell_boxes(*grid)
        if record.boxes is None:
            return features, None
        if len(record.boxes) != len(features):
            raise DataError(f"{where} has {len(record.boxes)} boxes for features of {len(features)} regions.")
        return features, contract_boxes(record.boxes, size, self.convention, where)

    def stored(self, features: np.ndarray, where: str) -> np.ndarray:
        with np.errstate(over="ignore"):
            stored = features.astype(self.plan.dtype)
        if not np.isfinite(stored).all():
            raise DataError(
                f"{where}: features reach {np.abs(features).max():g}, which {self.plan.dtype} cannot store; they are"
                " damaged, or need --dtype float32."
            )
        return stored

    def annotated(self, image_id: int, name: str, is_numbered: bool, where: str) -> AnnotatedImage:
        if not self.annotations:
            return AnnotatedImage({})
        found = self.annotations.find(image_id, name, is_numbered)
        if found is None or (self.plan.has_captions and not found.captions):
            files = ", ".join(map(str, self.annotations.paths))
            raise LeftOutError(f"{where}: {files} has no {'captions' if found else 'record'} of the image {name}.")
        return found


def pool(features: np.ndarray, grid: tuple[int, int], grid_size: tuple[int, int]) -> np.ndarray:
    """Returns the cells of a grid pooled by their means to another size, as RSTNet does, float32."""
    import torch

    feature_map = torch.from_numpy(np.array(features.T, dtype=np.float32, order="C")).view(1, -1, *grid)
    return torch.nn.functional.adaptive_avg_pool2d(feature_map, grid_size).flatten(2)[0].T.numpy()


def table_of(rows: Sequence[dict], columns: Features) -> pa.Table:
    """Returns rows of arrays as an Arrow table, without a Python object for each number."""
    schema = columns.arrow_schema
    arrays = []
    for column in schema:
        values = [row[column.name] for row in rows]
        arrays.append(
            vectors_of(values, column.type) if isinstance(values[0], np.ndarray) else pa.array(values, column.type)
        )
    return pa.Table.from_arrays(arrays, schema=schema)


def vectors_of(values: list[np.ndarray], kind: pa.DataType) -> pa.ListArray:
    """Returns arrays `(N, D)` of any N as an Arrow array of lists of vectors."""
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in values])])
    numbers = pa.array(np.concatenate(values).reshape(-1), kind.value_type.value_type)
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), vectors, type=kind)

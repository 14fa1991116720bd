"""The feature contract: the columns of every dataset of images or videos, and checks of rows against it.

A row: `image_id` int64, `visual_features` `(N, D)`, `visual_boxes` float32 `(N, 4)` as `x1, y1, x2, y2` divided by the
image's width and height (absent for video), `captions` list of strings; optional `image`, `width`, `height`, `split`
and `objects` (a name for each region). On disk features are float16 and memory-mapped.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, Image, List, Value, concatenate_datasets
from datasets.formatting import NumpyFormatter, _register_formatter
from datasets.formatting.formatting import NumpyArrowExtractor
from tqdm.auto import tqdm

from .errors import DataError, naming_damage

ARRAY_COLUMNS = ("visual_features", "visual_boxes")
WHOLE_ARRAYS = "hf_ngsan_whole_arrays"  # name of the format of [`WholeArrayFormatter`]
MIN_SIDE = 1e-3  # width or height of widened boxes without area, relative to the image: one pixel of 1000
BOX_TOLERANCE = 1e-3
"""How far a box may extend beyond its image, relative to the side; `models` has the same value."""
ROUNDING = 1.0  # pixels by which a box may extend beyond its image, as in COCO


def caption_features(
    feature_size: int,
    *,
    dtype: str = "float16",
    boxes: bool = True,
    image: bool = False,
    size: bool = False,
    split: bool = False,
    objects: bool = False,
) -> Features:
    """Returns the `datasets.Features` of a dataset of images or videos with captions.

    Args:
        feature_size: D, the feature dimension.
        dtype: `"float16"` or `"float32"`, the type of the features on disk.
        boxes, image, size, split, objects: whether to include the columns `visual_boxes`, `image`, `width` and
            `height`, `split`, `objects`.
    """
    features = {"image_id": Value("int64"), "visual_features": lists_of_vectors(feature_size, dtype)}
    if boxes:
        features["visual_boxes"] = lists_of_vectors(4, "float32")
    features["captions"] = List(Value("string"))
    if image:
        features["image"] = Image()
    if size:
        features |= {"width": Value("int32"), "height": Value("int32")}
    if split:
        features["split"] = Value("string")
    if objects:
        features["objects"] = List(Value("string"))
    return Features(features)


def lists_of_vectors(dimension: int, dtype: str) -> List:
    """Returns the type for any number of vectors of one dimension; it is read faster than `Array2D`."""
    return List(List(Value(dtype), length=dimension))


def with_arrays(dataset: Dataset) -> Dataset:
    """Returns the same dataset with features and boxes read as float32 arrays, everything else as Python objects."""
    columns = [name for name in ARRAY_COLUMNS if name in dataset.column_names]
    return dataset.with_format("numpy", columns=columns, output_all_columns=True)


def with_whole_arrays(rows: Any) -> Any:
    """Returns the same rows in a format that is read faster; do not save them: other programs cannot read it."""
    form = rows.format if isinstance(rows, Dataset) else {"type": None}
    return rows.with_format(**{**form, "type": WHOLE_ARRAYS}) if form["type"] == "numpy" else rows


class WholeArrayExtractor(NumpyArrowExtractor):
    def _arrow_array_to_numpy(self, pa_array: pa.Array | pa.ChunkedArray) -> Any:
        chunks = pa_array.chunks if isinstance(pa_array, pa.ChunkedArray) else [pa_array]
        arrays = [arrays_of(chunk) for chunk in chunks]
        if any(part is None for part in arrays):
            return super()._arrow_array_to_numpy(pa_array)
        return [array for part in arrays if part is not None for array in part]


def arrays_of(lists: pa.Array) -> list[np.ndarray] | None:
    """Returns lists of vectors of one dimension as arrays `(N, D)`; None for other types or null values."""
    if not pa.types.is_list(lists.type) or not pa.types.is_fixed_size_list(lists.type.value_type):
        return None
    bounds = lists.offsets.to_numpy()
    vectors = lists.values.slice(bounds[0], bounds[-1] - bounds[0])
    numbers = vectors.flatten()
    if not pa.types.is_floating(numbers.type) or lists.null_count or vectors.null_count or numbers.null_count:
        return None
    table = numbers.to_numpy(zero_copy_only=False).reshape(len(vectors), vectors.type.list_size)
    return [table[start:end] for start, end in pairwise(bounds - bounds[0])]


class WholeArrayFormatter(NumpyFormatter):
    numpy_arrow_extractor = WholeArrayExtractor


# datasets (tested with 5.2) has no public way to add a format, only transforms of decoded rows.
_register_formatter(WholeArrayFormatter, WHOLE_ARRAYS)


def clamp_boxes(boxes: np.ndarray) -> tuple[np.ndarray, int]:
    """Widens boxes `(N, 4)` without area to the side `MIN_SIDE`, around their centre and within the image.

    Returns the boxes, float32, and the number of changed ones. Inverted boxes are not changed.
    """
    boxes = np.asarray(boxes, dtype=np.float32)
    flat = boxes[:, 2:] == boxes[:, :2]
    if not flat.any():
        return boxes, 0
    centres = np.clip((boxes[:, :2] + boxes[:, 2:]) / 2, MIN_SIDE / 2, 1 - MIN_SIDE / 2)
    low = np.where(flat, centres - MIN_SIDE / 2, boxes[:, :2])
    high = np.where(flat, centres + MIN_SIDE / 2, boxes[:, 2:])
    return np.concatenate([low, high], axis=1).astype(np.float32), int(flat.any(axis=1).sum())


def cell_boxes(rows: int, columns: int) -> np.ndarray:
    """Returns the boxes `(rows * columns, 4)`, float32, of the cells of a grid over the image, row by row."""
    top, left = np.meshgrid(np.arange(rows) / rows, np.arange(columns) / columns, indexing="ij")
    boxes = np.stack([left, top, left + 1 / columns, top + 1 / rows], axis=-1)
    return boxes.reshape(-1, 4).clip(max=1).astype(np.float32)


def check_row(row: Mapping[str, Any], *, where: str, feature_size: int | None = None) -> dict[str, Any]:
    """Checks one row against the contract.

    Args:
        row: a mapping with the fields of the contract; arrays or nested lists.
        where: name of the row in errors, e.g. `"features:mine, row 7"`.
        feature_size: the required feature dimension D; None for any.

    Returns:
        The row with features and boxes as arrays; boxes are float32, and widened if they had no area (`clamp_boxes`).

    Raises:
        DataError: a field is missing or wrong.
    """
    checked = dict(row)
    checked["visual_features"] = check_features(row.get("visual_features"), where, feature_size)
    if is_missing(row.get("visual_boxes")):
        checked.pop("visual_boxes", None)
    else:
        boxes = check_boxes(row["visual_boxes"], len(checked["visual_features"]), where)
        checked["visual_boxes"], _ = clamp_boxes(boxes)
    if "captions" in row:
        check_captions(row["captions"], where)
    return checked


def check_dataset(dataset: Dataset, *, name: str) -> Dataset:
    """Checks every row of a dataset against the contract; `name` is for messages.

    Returns:
        The dataset. Boxes without area are widened, and one warning counts them. The columns `visual_boxes` and
        `captions` are removed if they have no value.

    Raises:
        DataError: a row is invalid; the message names the first such row and its field.
    """
    check_columns(dataset, name)
    dataset = drop_empty_columns(dataset)
    checked = [column for column in ("image_id", *ARRAY_COLUMNS, "captions") if column in dataset.column_names]
    feature_size = None
    for index, row in enumerate(rows_of(dataset.select_columns(checked), name)):
        feature_size = check_row_of_dataset(row, index, name, feature_size)["visual_features"].shape[1]
    return widen_boxes(dataset, name=name)


def check_columns(dataset: Dataset, name: str) -> None:
    """Raises a DataError for a dataset without rows, ids or features."""
    if not len(dataset) or not {"image_id", "visual_features"} <= {*dataset.column_names}:
        raise DataError(f"{name} lacks image_id or visual_features: {len(dataset)} rows of {dataset.column_names}.")


def check_row_of_dataset(row: Mapping[str, Any], index: int, name: str, feature_size: int | None) -> dict[str, Any]:
    """Checks a row like [`check_row`], and that it has an integer id and, if the dataset has boxes, boxes."""
    where = f"{name}, row {index} (image_id {row['image_id']})"
    if not isinstance(row["image_id"], int) or isinstance(row["image_id"], bool):
        raise DataError(f"{name}, row {index}: image_id is {row['image_id']!r}; it must be an integer.")
    if "visual_boxes" in row and is_missing(row["visual_boxes"]):
        raise DataError(f"{where}: visual_boxes is missing, but other rows have boxes; give boxes to all rows or none.")
    return check_row(row, where=where, feature_size=feature_size)


def drop_empty_columns(dataset: Dataset) -> Dataset:
    optional = [column for column in ("visual_boxes", "captions") if column in dataset.column_names]
    is_empty = {name: all(part.null_count == len(part) for part in column_parts(dataset, name)) for name in optional}
    return dataset.remove_columns([name for name in optional if is_empty[name]])


def widen_boxes(dataset: Dataset, *, name: str) -> Dataset:
    """Returns the dataset with boxes without area widened in every row; one warning counts them."""
    if "visual_boxes" not in dataset.column_names or not any(map(some_are_flat, column_parts(dataset, "visual_boxes"))):
        return dataset  # stays memory-mapped
    pairs = [clamp_boxes(row["visual_boxes"]) for row in rows_of(dataset.select_columns(["visual_boxes"]), name)]
    warnings.warn(widening_note(name, sum(number for _, number in pairs)), stacklevel=2)
    features = Features({"visual_boxes": lists_of_vectors(4, "float32")})
    column = Dataset.from_dict({"visual_boxes": [boxes for boxes, _ in pairs]}, features=features)
    return concatenate_datasets([dataset.remove_columns("visual_boxes"), column], axis=1)


def widening_note(name: str, number: int) -> str:
    return f"{name}: boxes without area were widened to {MIN_SIDE} of the image: {number}."


def is_missing(value: object) -> bool:
    """Returns whether a field is absent: None, or NaN, which datasets with `Array2D` use for None."""
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def column_parts(dataset: Dataset, column: str) -> Iterator[pa.Array]:
    for table in dataset.select_columns([column]).with_format("arrow").iter(batch_size=1024):
        yield table.column(column).combine_chunks()


def some_are_flat(boxes: pa.Array) -> bool:
    boxes = getattr(boxes, "storage", boxes)  # for Array2D
    corners = boxes.flatten().flatten().to_numpy(zero_copy_only=False).reshape(-1, 4)
    return bool((corners[:, 2:] == corners[:, :2]).any())


def rows_of(dataset: Dataset, name: str) -> Iterator[dict[str, Any]]:
    batches = with_whole_arrays(with_arrays(dataset)).iter(batch_size=128)
    total = -(-len(dataset) // 128)
    for batch in tqdm(batches, total=total, desc=f"checking {name}", delay=5, leave=False, disable=None):
        for i in range(len(next(iter(batch.values())))):
            yield {column: values[i] for column, values in batch.items()}


def check_features(features: Any, where: str, feature_size: int | None) -> np.ndarray:
    with naming_damage(f"{where}: visual_features"):
        features = np.asarray(features)
        bad = ~np.isfinite(features)
    if features.ndim != 2 or 0 in features.shape:
        raise DataError(f"{where}: visual_features has shape {features.shape}; it must be (regions, dimension).")
    if feature_size is not None and features.shape[1] != feature_size:
        raise DataError(f"{where}: visual_features has dimension {features.shape[1]}; others have {feature_size}.")
    if bad.any():
        row, channel = np.argwhere(bad)[0]
        raise DataError(f"{where}: visual_features[{row}, {channel}] is {features[row, channel]}; extract it again.")
    return features


def check_boxes(boxes: np.ndarray | Sequence, num_regions: int, where: str) -> np.ndarray:
    """Returns the boxes `(num_regions, 4)`, float32; they must be within [0, 1] up to `BOX_TOLERANCE`."""
    boxes = finite_boxes(boxes, where).astype(np.float32, copy=False)
    if len(boxes) != num_regions:
        raise DataError(f"{where}: visual_boxes has {len(boxes)} boxes for {num_regions} regions of visual_features.")
    outside = (boxes < -BOX_TOLERANCE) | (boxes > 1 + BOX_TOLERANCE)
    refuse_boxes(boxes, outside, "not within [0, 1]; divide x by the width and y by the height of the image", where)
    inverted = boxes[:, 2:] < boxes[:, :2]
    refuse_boxes(boxes, inverted, "inverted; the order is x1, y1, x2, y2 with x1 <= x2 and y1 <= y2", where)
    return boxes


def finite_boxes(boxes: np.ndarray | Sequence, where: str) -> np.ndarray:
    """Returns boxes `(N, 4)`; raises a DataError for another shape or numbers that are not finite."""
    with naming_damage(f"{where}: visual_boxes"):
        boxes = np.asarray(boxes)
        infinite = ~np.isfinite(boxes)
    if boxes.shape != (0,) and (boxes.ndim != 2 or boxes.shape[1] != 4):
        raise DataError(f"{where}: visual_boxes has shape {boxes.shape}; it must be (regions, 4) with x1, y1, x2, y2.")
    refuse_boxes(boxes, infinite.reshape(-1, 4), "not finite; leave the box or the row out", where)
    return boxes.reshape(-1, 4)


def refuse_boxes(boxes: np.ndarray, wrong: np.ndarray, fault: str, where: str) -> None:
    """Raises a DataError with the first wrong box."""
    if wrong.any():
        first = int(wrong.any(axis=1).argmax())
        values = ", ".join(f"{side:g}" for side in boxes[first])
        raise DataError(f"{where}: visual_boxes[{first}] is [{values}], which is {fault}.")


def check_captions(captions: Any, where: str) -> None:
    if is_missing(captions) or isinstance(captions, str | Mapping) or len(captions) == 0:
        raise DataError(f"{where}: captions is {captions!r}; it must be a non-empty list of strings.")
    for index, caption in enumerate(captions):
        if not isinstance(caption, str) or not caption.strip():
            raise DataError(f"{where}: captions[{index}] is {caption!r}; a caption is a string with at least one word.")

"""Boxes of regions, checked, and boxes of the cells of a grid.

The files of `models` have equal functions of their own, since a checkpoint carries them without this file.
"""

from collections.abc import Sequence

import numpy as np

from .errors import DataError

BOX_TOLERANCE = 1e-3
"""How far a box may reach beyond its image, as a share of the side: boxes rounded to whole pixels do so."""


def check_boxes(boxes: np.ndarray | Sequence, num_regions: int, where: str) -> np.ndarray:
    """Checks the boxes of one image.

    Args:
        boxes: `(num_regions, 4)`, `x1, y1, x2, y2` as shares of the image's width and height.
        num_regions: regions of the image.
        where: name of the image or row in an error.

    Returns:
        The boxes, float32.

    Raises:
        DataError: another shape or type, a box that is not finite, that reaches more than `BOX_TOLERANCE` out of
            [0, 1], or with x2 < x1 or y2 < y1.
    """
    boxes = as_numbers(boxes, "visual_boxes", where).astype(np.float32, copy=False)
    if boxes.shape != (0,) and (boxes.ndim != 2 or boxes.shape[1] != 4):
        raise DataError(f"{where}: visual_boxes has shape {boxes.shape}; it must be (regions, 4) with x1, y1, x2, y2.")
    if len(boxes) != num_regions:
        raise DataError(f"{where}: visual_boxes has {len(boxes)} boxes for {num_regions} regions of visual_features.")
    boxes = boxes.reshape(-1, 4)
    for wrong, fault in (
        (~np.isfinite(boxes).all(axis=1), "not finite; leave the box or the row out"),
        (
            ((boxes < -BOX_TOLERANCE) | (boxes > 1 + BOX_TOLERANCE)).any(axis=1),
            "not within [0, 1]; divide x by the width and y by the height of the image",
        ),
        ((boxes[:, 2:] < boxes[:, :2]).any(axis=1), "inverted; the order is x1, y1, x2, y2 with x1 <= x2 and y1 <= y2"),
    ):
        if wrong.any():
            first = int(wrong.argmax())
            values = ", ".join(f"{side:g}" for side in boxes[first])
            raise DataError(f"{where}: visual_boxes[{first}] is [{values}], which is {fault}.")
    return boxes


def cell_boxes(rows: int, columns: int) -> np.ndarray:
    """Returns the boxes `(rows * columns, 4)`, float32, of the cells of a grid over the image, row by row."""
    top, left = np.meshgrid(np.arange(rows) / rows, np.arange(columns) / columns, indexing="ij")
    boxes = np.stack([left, top, left + 1 / columns, top + 1 / rows], axis=-1)
    return boxes.reshape(-1, 4).clip(max=1).astype(np.float32)


def as_numbers(values: np.ndarray | Sequence, field: str, where: str) -> np.ndarray:
    """Returns a field as an array of numbers.

    Raises:
        DataError: it holds something else, or rows of different lengths.
    """
    try:
        array = np.asarray(values)
        if array.size and array.dtype.kind not in "fiu":
            raise ValueError
        return array
    except ValueError:
        raise DataError(f"{where}: {field} is not an array of numbers with rows of one length.") from None

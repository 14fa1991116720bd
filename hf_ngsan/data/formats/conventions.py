"""Conversion of boxes from any known convention to the contract's: `x1, y1, x2, y2` as shares of the image.

```python
contract_boxes(np.array([[50, 20, 100, 40]]), (200, 100), "xywh", "image 1")  # [[0.25, 0.2, 0.75, 0.6]]
```
"""

import numpy as np

from ..boxes import BOX_TOLERANCE
from ..errors import DataError
from .registry import ORDERS

ROUNDING = 1.0
"""Pixels by which a box may reach beyond its image, as boxes of COCO do; `BOX_TOLERANCE` is for normalized boxes."""
MAX_GUESSED_SIDE = 65_535
"""Pixels of a side of an image whose size is unknown: the most that JPEG can hold."""


def contract_boxes(
    boxes: np.ndarray, size: tuple[float, float] | None, convention: str | None, where: str
) -> np.ndarray:
    """Returns boxes as `x1, y1, x2, y2` divided by the image's width and height.

    Args:
        boxes: `(N, 4)`.
        size: width and height of the image in pixels; None = those of the smallest image from (0, 0) with all boxes,
            of `MAX_GUESSED_SIDE` pixels a side at most.
        convention: one of [`registry.CONVENTIONS`]; if None, `xyxy-normalized` where most boxes end within [0, 1], and
            else `xyxy`.
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
    corners = corners_of(boxes.astype(np.float64), order)
    hint = f"; in {ORDERS[order]} that is wrong: name the convention of the boxes with --boxes"
    refuse(boxes, corners[:, 2:] <= corners[:, :2], f"has no area{hint}", where)
    if unit:
        sides, tolerance = np.ones(2), BOX_TOLERANCE
    else:
        smallest = np.minimum(np.floor(corners[:, 2:].max(axis=0)) + 1, MAX_GUESSED_SIDE)
        sides = smallest if size is None else np.asarray(size, dtype=np.float64)
        tolerance = ROUNDING
    far = np.concatenate([corners < -tolerance, corners > np.tile(sides, 2) + tolerance], axis=1)
    refuse(boxes, far, f"leads beyond the image of {sides[0]:g} x {sides[1]:g}{hint}", where)
    return (corners / np.tile(sides, 2)).clip(0, 1).astype(np.float32)


def corners_of(boxes: np.ndarray, order: str) -> np.ndarray:
    if order == "xyxy":
        return boxes
    start, sides = boxes[:, :2], boxes[:, 2:]
    if order == "cxcywh":
        start = start - sides / 2
    return np.concatenate([start, start + sides], axis=1)


def refuse(boxes: np.ndarray, wrong: np.ndarray, fault: str, where: str) -> None:
    """Raises a DataError for the first box with any fault."""
    if wrong.any():
        first = int(wrong.any(axis=1).argmax())
        values = ", ".join(f"{number:g}" for number in boxes[first])
        raise DataError(f"{where}: box {first} is [{values}], which {fault}.")

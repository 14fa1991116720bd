"""Visual features and boxes of single images, padded to a batch; checked where a wrong one would go unnoticed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

Arrays = Sequence[np.ndarray | torch.Tensor] | np.ndarray | torch.Tensor
BOX_TOLERANCE = 1e-3
"""Allowed excess of boxes over [0, 1]: detectors' boxes in half precision are rounded by so much."""
PIXEL_TOLERANCE = 0.5
"""Allowed excess of boxes in pixels over the image: annotations round edges to whole pixels."""


def pad_visual_inputs(
    visual_features: Arrays | None = None, visual_boxes: Arrays | None = None
) -> dict[str, torch.Tensor]:
    """Pads the features or boxes of several images.

    Args:
        visual_features (*optional*): one array `(num_regions, visual_feature_size)` an image, any float type; a single
            such array is one image.
        visual_boxes (*optional*): one array `(num_regions, 4)` an image.

    Returns:
        `visual_features` `(B, N, D)` float32, `visual_boxes` `(B, N, 4)` float32, each if given, with zeros at padding;
        `attention_mask` `(B, N)` int64, 1 = real, of features, and of images with unequal numbers of boxes.

    Raises:
        ValueError: not as many boxes as features, NaN or infinite values, boxes outside [0, 1] or with x2 < x1 or
            y2 < y1; the message names the image by its index.
    """
    features = [] if visual_features is None else as_arrays(visual_features, "visual_features")
    boxes = [] if visual_boxes is None else as_arrays(visual_boxes, "visual_boxes")
    if features and boxes and len(features) != len(boxes):
        raise ValueError(f"There are visual_features of {len(features)} images but visual_boxes of {len(boxes)}.")
    for index, array in enumerate(boxes):
        check_boxes(array, len((features or boxes)[index]), f"image {index}")
    batch = {name: padded(of) for name, of in (("visual_features", features), ("visual_boxes", boxes)) if of}
    if features or len({len(array) for array in boxes}) > 1:
        batch["attention_mask"] = padded([np.ones(len(array), np.int64) for array in features or boxes])
    return batch


def boxes_of_regions(regions: Any, width: int, height: int, name: str) -> np.ndarray:
    """Turns boxes in pixels of an upright image into float32 boxes `(num_regions, 4)` within [0, 1].

    Args:
        regions: `(num_regions, 4)`, x1, y1, x2, y2 in pixels, from the outer edge of the first to that of the last.
        width, height: size of the image in pixels.
        name: name of the image in errors.

    Raises:
        ValueError: a box that exceeds the image by more than half a pixel, or with x2 < x1 or y2 < y1.
    """
    boxes = as_array(regions, f"regions of {name}")
    size = np.array([width, height, width, height], dtype=np.float32)
    if boxes.shape[1] != 4 or (boxes < -PIXEL_TOLERANCE).any() or (boxes > size + PIXEL_TOLERANCE).any():
        raise ValueError(
            f"Regions of {name} are not x1, y1, x2, y2 within its {width} x {height} pixels, turned upright."
        )
    boxes = (boxes / size).clip(0, 1)
    check_boxes(boxes, len(boxes), name)
    return boxes


def as_arrays(arrays: Arrays, name: str) -> list[np.ndarray]:
    """Returns one array an image, each as [`as_array`] does; a lone matrix is one image."""
    of_images: Any = [arrays] if len(arrays) and np.ndim(arrays[0]) == 1 else arrays
    return [as_array(array, f"{name} of image {index}") for index, array in enumerate(of_images)]


def as_array(array: Any, name: str) -> np.ndarray:
    """Returns the array of an image, float32; raises a ValueError without rows, or for values that are not finite."""
    array = np.asarray(array.detach().cpu().float() if isinstance(array, torch.Tensor) else array, dtype=np.float32)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise ValueError(
            f"{name} has the shape {array.shape}; it must be (num_regions, size), with a region at least, and finite."
        )
    return array


def check_boxes(boxes: np.ndarray, num_regions: int, name: str) -> None:
    """Raises a ValueError unless boxes `(num_regions, 4)` lie within [0, 1] and none is turned around."""
    fits = boxes.shape == (num_regions, 4) and boxes.min() >= -BOX_TOLERANCE and boxes.max() <= 1 + BOX_TOLERANCE
    if not fits or (boxes[:, 2:] < boxes[:, :2]).any():
        raise ValueError(
            f"visual_boxes of {name} have the shape {boxes.shape} and go from {boxes.min():.3g} to {boxes.max():.3g}; "
            f"they must be {num_regions} x 4: x1, y1, x2, y2 within [0, 1], with x1 <= x2 and y1 <= y2."
        )


def padded(arrays: list[np.ndarray]) -> torch.Tensor:
    """Returns `(B, N, ...)` with zeros behind the rows of shorter arrays."""
    return pad_sequence([torch.tensor(array) for array in arrays], batch_first=True)


def check_visual_features(
    features: torch.Tensor | None, mask: torch.Tensor | None, feature_size: int | None, name: str = "attention_mask"
) -> None:
    """Raises a ValueError unless features are `(batch_size, num_regions, feature_size)`, and their mask, if any, fits.

    A mask of another length would be cut or filled up.
    """
    shape, of_mask = (None if given is None else tuple(given.shape) for given in (features, mask))
    if shape is None or len(shape) != 3 or shape[2] != feature_size or not shape[1] or of_mask not in (None, shape[:2]):
        raise ValueError(
            f"visual_features have the shape {shape}, {name} {of_mask}; the model takes (batch_size, num_regions, "
            f"{feature_size}) and (batch_size, num_regions)."
        )


def check_visual_boxes(boxes: torch.Tensor | None, features: torch.Tensor, needed_by: str) -> None:
    """Raises a ValueError unless boxes are `(batch_size, num_regions, 4)`, or are missing and `needed_by` is empty."""
    shape, expected = None if boxes is None else tuple(boxes.shape), (*features.shape[:2], 4)
    if shape != expected and (shape or needed_by):
        raise ValueError(f"visual_boxes have the shape {shape}; with {needed_by or 'these features'} it is {expected}.")

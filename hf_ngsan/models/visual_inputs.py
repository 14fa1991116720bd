"""Visual features and boxes of single images, checked and padded to a batch."""

from collections.abc import Sequence

import numpy as np
import torch

BOX_TOLERANCE = 1e-3


def pad_visual_inputs(
    visual_features: Sequence[np.ndarray | torch.Tensor] | np.ndarray | torch.Tensor,
    visual_boxes: Sequence[np.ndarray | torch.Tensor] | np.ndarray | torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """Check and pad the visual tokens of several images.

    Args:
        visual_features: one array `(num_regions, visual_feature_size)` an image, any float type; a single such array is
            one image.
        visual_boxes (*optional*): one array `(num_regions, 4)` an image.

    Returns:
        `visual_features` `(B, N, D)` float32, `attention_mask` `(B, N)` int64 and, given boxes, `visual_boxes`
        `(B, N, 4)` float32; zero at padding.

    Raises:
        ValueError: wrong shape or number, NaN or infinite values, boxes outside [0, 1] or with x2 < x1 or y2 < y1; the
            message names the image by its index.
    """
    features = as_arrays(visual_features, "visual_features")
    for index, array in enumerate(features):
        if array.ndim != 2 or array.shape[0] == 0:
            raise ValueError(
                f"visual_features of image {index} has shape {array.shape}; it must be "
                "(num_regions, visual_feature_size) with at least one region."
            )
        if array.shape[1] != features[0].shape[1]:
            raise ValueError(
                f"visual_features of image {index} are {array.shape[1]} wide, those of image 0 {features[0].shape[1]}; "
                "one batch takes one kind of features."
            )
    if not features:
        raise ValueError("visual_features is empty: give at least one image.")
    lengths = [len(array) for array in features]
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    batch = {"visual_features": pad(features, max(lengths)), "attention_mask": mask.long()}
    if visual_boxes is not None:
        boxes = as_arrays(visual_boxes, "visual_boxes")
        if len(boxes) != len(features):
            raise ValueError(f"There are visual_features of {len(features)} images but visual_boxes of {len(boxes)}.")
        for index, (array, length) in enumerate(zip(boxes, lengths, strict=True)):
            check_boxes(array, length, index)
        batch["visual_boxes"] = pad(boxes, max(lengths))
    return batch


def as_arrays(arrays, name: str) -> list[np.ndarray]:
    """One float32 array an image; a lone matrix is one image."""
    if isinstance(arrays, (np.ndarray, torch.Tensor)) and arrays.ndim == 2:
        arrays = [arrays]
    return [as_array(array, f"{name} of image {index}") for index, array in enumerate(arrays)]


def as_array(array, name: str) -> np.ndarray:
    """The array as float32 in numpy; every value must be finite."""
    try:
        array = np.asarray(array.detach().cpu() if isinstance(array, torch.Tensor) else array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is not an array of numbers: {error}") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contain NaN or infinite values; remove or re-extract these regions.")
    return array


def check_boxes(boxes: np.ndarray, num_regions: int, index: int):
    if boxes.shape != (num_regions, 4):
        raise ValueError(
            f"visual_boxes of image {index} has shape {boxes.shape}; with its {num_regions} features it must be "
            f"{(num_regions, 4)}."
        )
    if boxes.min() < -BOX_TOLERANCE or boxes.max() > 1 + BOX_TOLERANCE:
        raise ValueError(
            f"visual_boxes of image {index} range from {boxes.min():.3g} to {boxes.max():.3g}; divide x by the image's "
            "width and y by its height, so that they lie within [0, 1]."
        )
    if (boxes[:, 2:] < boxes[:, :2]).any():
        row = int((boxes[:, 2:] < boxes[:, :2]).any(axis=1).argmax())
        raise ValueError(
            f"Box {row} of image {index}, {boxes[row].tolist()}, is turned around; boxes are x1, y1, x2, y2 with "
            "x1 <= x2 and y1 <= y2."
        )


def pad(arrays: list[np.ndarray], length: int) -> torch.Tensor:
    batch = np.zeros((len(arrays), length, arrays[0].shape[1]), dtype=np.float32)
    for row, array in zip(batch, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(batch)

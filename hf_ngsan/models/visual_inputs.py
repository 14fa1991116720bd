"""Pixels, visual features and boxes of single images, checked and padded to a batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

Arrays = Sequence[np.ndarray | torch.Tensor] | np.ndarray | torch.Tensor
BOX_TOLERANCE = 1e-3
"""Allowed excess of boxes over [0, 1]: detectors' boxes in half precision are rounded by so much."""
PIXEL_TOLERANCE = 0.5
"""Allowed excess of boxes in pixels over the image: annotations round edges to whole pixels."""


def pad_visual_inputs(visual_features: Arrays, visual_boxes: Arrays | None = None) -> dict[str, torch.Tensor]:
    """Checks and pads the visual tokens of several images.

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
        check_features(array, f"image {index}")
        if array.shape[1] != features[0].shape[1]:
            raise ValueError(
                f"visual_features of image {index} have the dimension {array.shape[1]}, those of image 0 "
                f"{features[0].shape[1]}; one batch takes one kind of features."
            )
    if not features:
        raise ValueError("visual_features is empty: give at least one image.")
    batch = {"visual_features": pad(features), "attention_mask": padding_mask(features)}
    if visual_boxes is not None:
        boxes = as_arrays(visual_boxes, "visual_boxes")
        if len(boxes) != len(features):
            raise ValueError(f"There are visual_features of {len(features)} images but visual_boxes of {len(boxes)}.")
        for index, (array, of_image) in enumerate(zip(boxes, features, strict=True)):
            check_boxes(array, len(of_image), f"image {index}")
        batch["visual_boxes"] = pad(boxes)
    return batch


def pad_visual_boxes(visual_boxes: Arrays, num_images: int) -> dict[str, torch.Tensor]:
    """Checks and pads the boxes of images that are given as pixels.

    Args:
        visual_boxes: one array `(num_regions, 4)` an image, or a single array for one image; within [0, 1].
        num_images: how many images there are.

    Returns:
        `visual_boxes` `(B, N, 4)` float32 and, only if the images have unequal numbers of regions, `attention_mask`
        `(B, N)` int64.

    Raises:
        ValueError: as `pad_visual_inputs` does.
    """
    boxes = as_arrays(one_per_image(visual_boxes, num_images), "visual_boxes")
    if len(boxes) != num_images:
        raise ValueError(f"There are {num_images} images but visual_boxes of {len(boxes)}.")
    for index, array in enumerate(boxes):
        check_regions(array, f"visual_boxes of image {index}")
        check_boxes(array, len(array), f"image {index}")
    batch = {"visual_boxes": pad(boxes)}
    if len({len(array) for array in boxes}) > 1:
        batch["attention_mask"] = padding_mask(boxes)
    return batch


def pad_pixels(images: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Joins the outputs of an image processor for single images.

    Args:
        images: `pixel_values` `(1, C, height, width)` and, if any, `pixel_mask` `(1, height, width)` of each.

    Returns:
        `pixel_values` `(B, C, height, width)`, with 0 to the right of and below smaller images, and then, or if an
        image has one, `pixel_mask` `(B, height, width)`, 1 = image.
    """
    pixels = [image["pixel_values"] for image in images]
    masks = [image.get("pixel_mask") for image in images]
    if len({image.shape for image in pixels}) == 1 and all(mask is None for mask in masks):
        return {"pixel_values": torch.cat(pixels)}
    height, width = (max(image.shape[axis] for image in pixels) for axis in (-2, -1))

    def padded(image: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(image, (0, width - image.shape[-1], 0, height - image.shape[-2]))

    filled = [
        torch.ones(image.shape[0], *image.shape[-2:], dtype=torch.long) if mask is None else mask
        for image, mask in zip(pixels, masks, strict=True)
    ]
    return {"pixel_values": torch.cat([*map(padded, pixels)]), "pixel_mask": torch.cat([*map(padded, filled)])}


def real_size(image: Mapping[str, torch.Tensor]) -> tuple[int, int]:
    """Returns height and width of a single image within its padding."""
    mask = image.get("pixel_mask")
    if mask is None:
        height, width = image["pixel_values"].shape[-2:]
        return height, width
    return int(mask[0].amax(1).sum()), int(mask[0].amax(0).sum())


def boxes_of_regions(regions: Any, width: int, height: int, name: str) -> np.ndarray:
    """Turns boxes in pixels of an upright image into boxes of the model.

    Args:
        regions: `(num_regions, 4)`, x1, y1, x2, y2 in pixels, 0 is the outer edge of the first pixel and `width`
            (`height`) that of the last.
        width, height: size of the image in pixels.
        name: name of the image in errors.

    Returns:
        float32 `(num_regions, 4)` within [0, 1].

    Raises:
        ValueError: another shape, a box that exceeds the image by more than half a pixel, or an inverted box; the
            message names image and box.
    """
    boxes = as_array(regions, f"regions of {name}")
    check_regions(boxes, f"regions of {name}")
    size = np.array([width, height, width, height], dtype=np.float32)
    outside = ((boxes < -PIXEL_TOLERANCE) | (boxes > size + PIXEL_TOLERANCE)).any(axis=1)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(
            f"Box {row} of {name}, {boxes[row].tolist()}, reaches out of the image, which has {width} x {height} "
            "pixels; regions are x1, y1, x2, y2 in pixels of the upright image."
        )
    check_order(boxes, name)
    return (boxes / size).clip(0, 1)


def check_visual_features(
    visual_features: torch.Tensor | None,
    mask: torch.Tensor | None,
    feature_size: int | None,
    mask_name: str = "attention_mask",
) -> None:
    """Raises a ValueError unless features are `(batch_size, num_regions, feature_size)`, and their mask fits."""
    if visual_features is None:
        raise ValueError("The model needs visual_features (or encoder_outputs); neither was given.")
    if visual_features.ndim != 3 or visual_features.shape[-1] != feature_size:
        raise ValueError(
            f"visual_features has shape {tuple(visual_features.shape)}; the configuration wants "
            f"(batch_size, num_regions, {feature_size}) (visual_feature_size={feature_size})."
        )
    if not visual_features.numel():
        raise ValueError(
            f"visual_features has shape {tuple(visual_features.shape)}; give at least one image with at least one "
            "region."
        )
    if mask is not None and mask.shape != visual_features.shape[:2]:
        raise ValueError(
            f"{mask_name} has shape {tuple(mask.shape)}; with these visual_features it must be "
            f"{tuple(visual_features.shape[:2])}."
        )


def check_visual_boxes(visual_boxes: torch.Tensor | None, visual_features: torch.Tensor, needed_by: str) -> None:
    """Raises a ValueError unless boxes are `(batch_size, num_regions, 4)`, or may be missing.

    Args:
        visual_boxes, visual_features: of a batch.
        needed_by: fields of the configuration that need boxes; "" if they may be missing.
    """
    if visual_boxes is None:
        if needed_by:
            raise ValueError(f"visual_boxes are missing: this model needs them, as its configuration has {needed_by}.")
    elif visual_boxes.shape != (*visual_features.shape[:2], 4):
        raise ValueError(
            f"visual_boxes has shape {tuple(visual_boxes.shape)}; with these visual_features it must be "
            f"{(*visual_features.shape[:2], 4)}."
        )


def one_per_image(arrays: Any, num_images: int) -> Any:
    """Lists the arrays of images; the single matrix of a single image is one of them."""
    try:
        is_matrix = np.ndim(arrays) == 2
    except (TypeError, ValueError):  # arrays of unequal size, or on another device
        is_matrix = False
    return [arrays] if is_matrix and num_images == 1 else arrays


def as_arrays(arrays: Any, name: str) -> list[np.ndarray]:
    """Returns one float32 array an image; a lone matrix is one image."""
    if isinstance(arrays, (np.ndarray, torch.Tensor)) and arrays.ndim == 2:
        arrays = [arrays]
    return [as_array(array, f"{name} of image {index}") for index, array in enumerate(arrays)]


def as_array(array: Any, name: str) -> np.ndarray:
    """Returns the array as float32 in numpy; every value must be finite."""
    if array is None:
        raise ValueError(f"{name} is None; give an array for every image of a batch or for none.")
    try:
        array = np.asarray(array.detach().cpu() if isinstance(array, torch.Tensor) else array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is not an array of numbers: {error}") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contain NaN or infinite values; remove or re-extract these regions.")
    return array


def check_features(features: np.ndarray, name: str) -> None:
    if features.ndim != 2 or features.shape[0] == 0:
        raise ValueError(
            f"visual_features of {name} has shape {features.shape}; it must be (num_regions, visual_feature_size) with "
            "at least one region."
        )


def check_boxes(boxes: np.ndarray, num_regions: int, name: str) -> None:
    if boxes.shape != (num_regions, 4):
        raise ValueError(
            f"visual_boxes of {name} has shape {boxes.shape}; with its {num_regions} features it must be "
            f"{(num_regions, 4)}."
        )
    if boxes.min() < -BOX_TOLERANCE or boxes.max() > 1 + BOX_TOLERANCE:
        raise ValueError(
            f"visual_boxes of {name} range from {boxes.min():.3g} to {boxes.max():.3g}; divide x by the image's width "
            "and y by its height, so that they lie within [0, 1]."
        )
    check_order(boxes, name)


def check_regions(boxes: np.ndarray, name: str) -> None:
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not len(boxes):
        raise ValueError(f"{name} has shape {boxes.shape}; it must be (num_regions, 4) with at least one region.")


def check_order(boxes: np.ndarray, name: str) -> None:
    turned = (boxes[:, 2:] < boxes[:, :2]).any(axis=1)
    if turned.any():
        row = int(turned.argmax())
        raise ValueError(
            f"Box {row} of {name}, {boxes[row].tolist()}, is turned around; boxes are x1, y1, x2, y2 with x1 <= x2 and "
            "y1 <= y2."
        )


def padding_mask(arrays: list[np.ndarray]) -> torch.Tensor:
    """Returns a mask `(B, N)`: 1 = real, 0 = padding."""
    lengths = torch.tensor([len(array) for array in arrays])
    return (torch.arange(int(lengths.max()))[None] < lengths[:, None]).long()


def pad(arrays: list[np.ndarray]) -> torch.Tensor:
    """Returns `(B, N, D)` with zeros behind the rows of shorter arrays."""
    batch = np.zeros((len(arrays), max(map(len, arrays)), arrays[0].shape[1]), dtype=np.float32)
    for row, array in zip(batch, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(batch)

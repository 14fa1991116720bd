"""Settings that a checkpoint brings along beside its weights, checked before anything is made with them."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
from PIL import Image
from transformers import BaseImageProcessor

from ..ground.bounds import MAX_SIDE
from ..ground.messages import one_sentence

SIZES = ("size", "crop_size", "pad_size")
LARGEST_AREA = 2**22
"""Pixels of an image that is given to a model: 2048 x 2048."""


class LoadedSettingsError(ValueError):
    """A setting that cannot be used; the message names it, but not the folder."""


def check_image_processor(image_processor: BaseImageProcessor) -> None:
    """Raises a LoadedSettingsError unless images become tensors of finite numbers and of no absurd size."""
    for name in SIZES:
        size: Any = getattr(image_processor, name, None)
        size = asdict(size) if is_dataclass(size) and not isinstance(size, type) else size
        sides = size.values() if isinstance(size, Mapping) else [size]
        if not all(side is None or (type(side) is int and 1 <= side <= MAX_SIDE) for side in sides):
            raise LoadedSettingsError(
                f"{name} of the image processor is {size!r:.100}; its sides can be 1 to {MAX_SIDE} pixels"
            )
        shortest = sorted(side for side in sides if side)[:2]
        if shortest and min(shortest) * max(shortest) > LARGEST_AREA:
            raise LoadedSettingsError(
                f"{name} of the image processor is {size!r:.100}; images can have {LARGEST_AREA:,} pixels at most"
            )
    try:
        pixels = image_processor(images=Image.new("RGB", (64, 48)), return_tensors="pt")["pixel_values"]
    except Exception as error:  # whatever comes of a setting of the wrong type
        raise LoadedSettingsError(f"the settings of the image processor do not work ({one_sentence(error)})") from error
    if not torch.isfinite(pixels).all():
        raise LoadedSettingsError("the image processor makes pixels that are not finite; correct image_mean, image_std")

"""Checks of a loaded model: finite weights, and an image processor that makes pixels of a usable size."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
from PIL import Image
from torch import nn
from transformers import BaseImageProcessor

from ..ground.bounds import MAX_SIDE
from ..ground.messages import one_sentence

MAX_AREA = 2**22
"""Pixels of a preprocessed image: 2048 x 2048."""
MAX_PIXELS = 2**24
"""Pixels of an image for processors that are set to their number, such as Qwen2-VL's, to 12,845,056."""


class UnusableModelError(ValueError):
    """Weights or settings of an image processor that do not work; the message does not name the folder."""


def parameters_of(build: Callable[[], nn.Module]) -> dict[str, nn.Parameter]:
    """Returns the parameters of a model by name, shared ones once, built on the device `meta` without memory."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return dict(build().named_parameters())


def count(parameters: Iterable[nn.Parameter]) -> int:
    """Returns the number of values of some parameters."""
    return sum(one.numel() for one in parameters)


def check_weights_are_finite(model: nn.Module) -> None:
    """Raises an UnusableModelError for weights that are not finite, which make all captions meaningless."""
    for name, weights in model.named_parameters():
        if weights.device.type != "meta" and not torch.isfinite(weights).all():
            raise UnusableModelError(f"the weights {name} are not finite")


def counts_pixels(image_processor: BaseImageProcessor) -> bool:
    """Returns whether the edges of `size` are numbers of pixels, as with Qwen-VL, which keeps the shape of images."""
    return "max_pixels" in getattr(getattr(image_processor, "valid_kwargs", None), "__annotations__", {})


def check_image_processor(image_processor: BaseImageProcessor) -> None:
    """Raises an UnusableModelError unless an image becomes a tensor of finite numbers within the size limits."""
    for name in ("size", "crop_size", "pad_size"):
        size: Any = getattr(image_processor, name, None)
        size = asdict(size) if is_dataclass(size) and not isinstance(size, type) else size
        sides = [side for side in (size.values() if isinstance(size, Mapping) else [size]) if side is not None]
        if counts_pixels(image_processor) and all(type(area) is int and 1 <= area <= MAX_PIXELS for area in sides):
            continue
        if not all(type(side) is int and 1 <= side <= MAX_SIDE for side in sides):
            raise UnusableModelError(
                f"{name} of the image processor is {size!r:.100}; its sides can be 1 to {MAX_SIDE} pixels"
            )
        shortest = sorted(sides)[:2]
        if shortest and min(shortest) * max(shortest) > MAX_AREA:
            raise UnusableModelError(
                f"{name} of the image processor is {size!r:.100}; images can have {MAX_AREA:,} pixels at most"
            )
    try:
        black_and_white = Image.new("RGB", (64, 48))
        black_and_white.paste("white", (0, 0, 32, 48))
        made = image_processor(images=black_and_white, return_tensors="pt")
        pixels = made["flattened_patches" if "flattened_patches" in made else "pixel_values"]  # Pix2Struct has patches
    except Exception as error:  # settings of a wrong type fail in many ways
        raise UnusableModelError(f"the settings of the image processor do not work ({one_sentence(error)})") from error
    if not torch.isfinite(pixels).all():
        raise UnusableModelError("the image processor makes pixels that are not finite; correct image_mean, image_std")

"""Checks of a loaded model: finite weights, and an image processor that makes pixels of finite numbers."""

from collections.abc import Callable, Iterable

import torch
from PIL import Image
from torch import nn
from transformers import BaseImageProcessor

from ..io.messages import one_sentence


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


def check_image_processor(image_processor: BaseImageProcessor) -> None:
    """Raises an UnusableModelError unless an image becomes a tensor of finite numbers."""
    try:
        black_and_white = Image.new("RGB", (64, 48))
        black_and_white.paste("white", (0, 0, 32, 48))
        made = image_processor(images=black_and_white, return_tensors="pt")
        pixels = made["flattened_patches" if "flattened_patches" in made else "pixel_values"]  # Pix2Struct has patches
    except Exception as error:  # settings of a wrong type fail in many ways
        raise UnusableModelError(f"the settings of the image processor do not work ({one_sentence(error)})") from error
    if not torch.isfinite(pixels).all():
        raise UnusableModelError("the image processor makes pixels that are not finite; correct image_mean, image_std")

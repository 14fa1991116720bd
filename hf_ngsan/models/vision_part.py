"""The vision encoder as an optional part of a model."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.utils import ModelOutput

from .configuration_hub import from_part


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

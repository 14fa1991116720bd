"""Encoders of patches that have no feature maps (CLIP, SigLIP, ViT, ...), as backbones.

```python
encoder = make_patch_encoder(config)  # a CLIPVisionModel without what pools its states
see_patches(encoder, pixel_values).feature_maps  # one map (B, 768, 7, 7); without the class token
```
"""

import inspect
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BackboneOutput

from .configuration_vision import PATCH_ENCODERS, is_patch_encoder, make_transformers_backbone, stage_names


def make_patch_encoder(config: Any) -> Any:
    """Makes the encoder of one of `PATCH_ENCODERS`, with new weights and without the module that pools its states."""
    encoder = make_transformers_backbone("AutoModel", config)
    _, pooling = PATCH_ENCODERS[config.model_type]
    if pooling is not None and hasattr(encoder, pooling):
        setattr(encoder, pooling, nn.Identity())
    return encoder


def see_patches(encoder: Any, pixel_values: torch.Tensor, output_hidden_states: bool = False) -> BackboneOutput:
    """Returns the maps `(B, D, rows, columns)` of the stages that the configuration names, and the hidden states.

    Args:
        encoder: see [`make_patch_encoder`].
        pixel_values: `(B, 3, height, width)`, of a size that [`check_size`] allows.
        output_hidden_states: whether to return the states of all tokens behind the embeddings and behind each layer.
    """
    config, stages = encoder.config, stage_names(encoder.config)
    check_size(encoder, *pixel_values.shape[-2:])
    size = tuple(pixel_values.shape[-2:])
    asked_for: dict[str, Any] = {"interpolate_pos_encoding": True} if size != both_sides(config.image_size) else {}
    if output_hidden_states or config.out_features != stages[-1:]:
        asked_for["output_hidden_states"] = True
    found = encoder(pixel_values, **asked_for)
    before, _ = PATCH_ENCODERS[config.model_type]
    grid = [side // patch for side, patch in zip(size, both_sides(config.patch_size), strict=True)]
    of_stages = [
        found.last_hidden_state if stage == stages[-1] else found.hidden_states[stages.index(stage)]
        for stage in config.out_features
    ]
    maps = tuple(states[:, before:].mT.unflatten(-1, grid) for states in of_stages)
    return BackboneOutput(feature_maps=maps, hidden_states=found.hidden_states)


def check_size(encoder: Any, height: int, width: int) -> None:
    """Raises a ValueError if an encoder cannot take images of a size.

    Its position embeddings are interpolated for another size than its own, where transformers offers that.
    """
    own, patches = both_sides(encoder.config.image_size), both_sides(encoder.config.patch_size)
    parameters = inspect.signature(encoder.forward).parameters
    if (height, width) == own:
        return
    if "interpolate_pos_encoding" not in parameters or own[0] // patches[0] != own[1] // patches[1]:
        needed = f"it takes {own[0]} x {own[1]} pixels only"
    elif height < patches[0] or width < patches[1]:
        needed = f"its patches are {patches[0]} x {patches[1]} pixels"
    else:
        return
    raise ValueError(
        f"This patch encoder ({encoder.config.model_type}) cannot take images of height {height} and width {width}: "
        f"{needed}; change the size in the image processor, --image-size or data.image_size of the training config."
    )


def own_image_size(vision: Any) -> int | None:
    """Returns height and width of the images that a vision encoder's patch encoder was made for, if they are equal."""
    backbone = vision.config.backbone_config
    height, width = both_sides(backbone.image_size) if is_patch_encoder(backbone) else (None, None)
    return height if height == width else None


def both_sides(size: Any) -> tuple[int, int]:
    """Returns height and width of a size that one number or both describe."""
    return (size, size) if isinstance(size, int) else tuple(size)


__all__ = ["check_size", "make_patch_encoder", "own_image_size", "see_patches"]

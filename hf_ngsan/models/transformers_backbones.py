"""Backbones and detection models of transformers, and encoders of patches without feature maps (CLIP, ViT, ...).

```python
config = make_config({"model_type": "clip_vision_model", "patch_size": 32})
encoder = make_model("grid", config)  # a CLIPVisionModel without what pools its states
see_image(encoder, pixel_values)  # one map (B, 768, 7, 7), without the class token, and how much of the image it shows
```
"""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers.backbone_utils import BackboneConfigMixin
from transformers.modeling_outputs import BackboneOutput
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .configuration_hub import PreTrainedConfig, first_line
from .configuration_vision import OWN_CONFIGS, with_out_features

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


def is_patch_encoder(backbone: Any) -> bool:
    """Returns whether the configuration of a backbone is one of `PATCH_ENCODERS`."""
    return getattr(backbone, "model_type", None) in PATCH_ENCODERS


def stage_names(backbone: Any) -> list[str]:
    """Returns the names of a backbone's stages; those of a patch encoder are its embeddings and its layers."""
    if not is_patch_encoder(backbone):
        return list(getattr(backbone, "stage_names", None) or [])
    return ["stem", *(f"stage{number}" for number in range(1, backbone.num_hidden_layers + 1))]


def make_config(config: dict | PreTrainedConfig, out_features: Sequence[str | int] | None = None) -> Any:
    """Makes the configuration of a backbone or detection model, of the patch encoder for a model that has one in it.

    The arguments are those of [`configuration_vision.make_backbone_config`].
    """
    made: Any = config_from_dict(config) if isinstance(config, dict) else config
    made = made.vision_config if is_patch_encoder(getattr(made, "vision_config", None)) else made
    if not is_patch_encoder(made):
        return made if out_features is None else with_out_features(made, out_features)
    stages: Any = BackboneConfigMixin()
    stages.stage_names = stage_names(made)
    wanted = out_features or getattr(made, "out_features", None) or stages.stage_names[-1:]
    made = copy.deepcopy(made)
    made.out_features = with_out_features(stages, wanted).out_features
    return made


def config_from_dict(config: dict) -> PreTrainedConfig:
    """Makes a configuration from a dict with its `model_type`."""
    fields = copy.deepcopy(config)
    model_type = fields.pop("model_type", "")
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


def make_model(kind: str, config: Any) -> Any:
    """Makes the backbone of a grid, or the detection model of `"regions"`, with new weights.

    A patch encoder is made without the module that pools its states.
    """
    if kind == "regions":
        return make_transformers_model("AutoModelForObjectDetection", config)
    if not is_patch_encoder(config):
        return make_transformers_model("AutoBackbone", config)
    encoder = make_transformers_model("AutoModel", config)
    _, pooling = PATCH_ENCODERS[config.model_type]
    if pooling is not None and hasattr(encoder, pooling):
        setattr(encoder, pooling, nn.Identity())
    return encoder


def make_transformers_model(auto_class: str, config: PreTrainedConfig) -> Any:
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


def see_image(backbone: Any, pixel_values: torch.Tensor, **asked_for: bool) -> tuple[Any, list[float]]:
    """Returns the output of a backbone with its feature maps, and how much of an image `(x, y, x, y)` they show.

    That is all of it unless the image is no multiple of the patches, as 384 pixels are none of 14: patches leave out a
    rest on the right and below.
    """
    see = see_patches if is_patch_encoder(backbone.config) else type(backbone).__call__
    found: Any = see(backbone, pixel_values, **asked_for)
    seen, patch = [1.0] * 4, getattr(backbone.config, "patch_size", None)
    for first, (axis, side) in enumerate(zip((-1, -2), reversed(both_sides(patch)), strict=True) if patch else ()):
        cells, pixels = found.feature_maps[-1].shape[axis], pixel_values.shape[axis]
        if cells == pixels // side:
            seen[first::2] = [cells * side / pixels] * 2
    return found, seen


def see_patches(encoder: Any, pixel_values: torch.Tensor, output_hidden_states: bool = False) -> BackboneOutput:
    """Returns the maps `(B, D, rows, columns)` of the stages that the configuration names, and the hidden states.

    Args:
        encoder: see [`make_model`].
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


__all__ = ["check_size", "is_patch_encoder", "make_config", "make_model", "own_image_size", "see_image"]

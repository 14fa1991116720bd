"""The vision encoder as an optional part of a model, and checkpoints that leave its backbone out."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn
from transformers.utils import ModelOutput, logging

from .configuration_hub import HubModelMixin, PreTrainedConfig, SubConfigSpec
from .configuration_parts import ConfigWithParts, from_part, has_part

logger = logging.get_logger(__name__)

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
    parts = ("vision_config",)

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


@dataclass(frozen=True)
class LeftOutPart:
    """A frozen part of a model whose weights are left out of its checkpoints.

    Attributes:
        title: its name for a person.
        prefix: of the names of its weights in the model.
        names: its weights.
        config: the configuration whose `save_frozen_weights` leaves them out.
        source: the folder, package or Hub repository that has them.
        load: returns the source's weights by names without the prefix.
    """

    title: str
    prefix: str
    names: list[str]
    config: Any
    source: str
    load: Callable[[], Mapping[str, torch.Tensor]]

    def is_unchanged(self, weights: Mapping[str, torch.Tensor]) -> bool:
        """Returns whether the model's weights are those that loading would take from the source."""
        try:
            expected = self.load()
        except (OSError, ValueError):  # loading could not take them from there
            return False
        own = {name: weights.get(self.prefix + name) for name in self.names}
        return all(
            weight is not None and torch.equal(weight.cpu(), expected[name].to("cpu", weight.dtype))
            for name, weight in own.items()
        )


class VisionCheckpointMixin(HubModelMixin):
    """Loads and saves a model with a vision encoder, whose backbone may be left out of its checkpoints.

    It is for whole models, not for their parts, and stands before `PreTrainedModel` among the base classes.
    `VisionConfig.save_frozen_weights` decides it; a backbone that has other weights than its source is saved whatever
    it says, and the saved configuration then has `save_frozen_weights=True`.
    """

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        loaded = super().from_pretrained(*args, **kwargs)
        for vision in left_out_backbones(loaded[0] if isinstance(loaded, tuple) else loaded).values():
            vision.load_pretrained_backbone()
        return loaded

    def left_out_parts(self) -> list[LeftOutPart]:
        """Returns the parts that are left out of checkpoints; a subclass adds those that are no backbones."""
        return [
            LeftOutPart(
                title="backbone",
                prefix=f"{path}.backbone.".lstrip("."),
                names=list(vision.backbone.state_dict()),
                config=vision.config,
                source=vision.config.pretrained,
                load=vision.pretrained_weights,
            )
            for path, vision in left_out_backbones(self).items()
        ]

    def save_pretrained(
        self,
        save_directory: str | os.PathLike,
        is_main_process: bool = True,
        state_dict: dict | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        left_out, saved = set(), []
        whole: Any = self
        weights = whole.state_dict() if state_dict is None else state_dict
        for part in self.left_out_parts() if is_main_process else ():
            if part.is_unchanged(weights):
                left_out |= {part.prefix + name for name in part.names}
                logger.warning(
                    f"The weights of the frozen {part.title} are left out of the saved model; loading takes them from "
                    f"{part.source}."
                )
            else:
                saved.append(part.config)
                logger.warning(
                    f"The weights of the frozen {part.title} are saved with the model, although save_frozen_weights is "
                    f"False: they are not those of {part.source}."
                )
        always = self._keys_to_ignore_on_save
        self._keys_to_ignore_on_save = left_out.union(always or ())
        for config in saved:
            config.save_frozen_weights = True
        try:
            super().save_pretrained(save_directory, is_main_process, state_dict, *args, **kwargs)
        finally:
            self._keys_to_ignore_on_save = always
            for config in saved:
                config.save_frozen_weights = False

    def set_attn_implementation(self, *args: Any, **kwargs: Any) -> None:
        """Chooses the attention of all but backbones of transformers, many of which have one kind or none."""
        encoders = [vision for vision in vision_encoders(self).values() if not vision.has_own_backbone]
        backbones: list[Any] = [vision._modules.pop("backbone") for vision in encoders]
        try:
            super().set_attn_implementation(*args, **kwargs)
        finally:
            for vision, backbone in zip(encoders, backbones, strict=True):
                vision.backbone = backbone


def vision_encoders(model: nn.Module) -> dict[str, Any]:
    """Returns the vision encoders of a model, or itself, by their names in it."""
    modules = model.named_modules()
    return {name: module for name, module in modules if getattr(type(module), "is_vision_encoder", False)}


def left_out_backbones(model: nn.Module) -> dict[str, Any]:
    """Returns the vision encoders whose backbone is not saved with the model, by their names in it."""
    return {name: vision for name, vision in vision_encoders(model).items() if not vision.config.save_frozen_weights}

"""Base class of all models: checkpoints with code and without frozen weights, checks of inputs, and attention."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import TransformersKwargs
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.import_utils import is_tracing

from .configuration_hub import from_part


class HubPreTrainedModel(PreTrainedModel):
    """Base class of models; saves code if the model was loaded with it, and can leave out frozen weights."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if hasattr(module, "initialize"):  # a module that initializes itself
            module.initialize()  # type: ignore[operator]

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        if model.leaves_out_weights:
            from_part("pretrained_weights.load_left_out_weights")(model)
        return loaded

    def save_pretrained(
        self,
        save_directory: str | os.PathLike,
        is_main_process: bool = True,
        state_dict: dict | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        config: Any = self.config
        with ExitStack() as during:
            if getattr(config, "auto_map", None) and (auto_class := config.auto_class_of(type(self))):
                classes = {type(config): "AutoConfig", type(self): auto_class}
                during.enter_context(registered_for_auto_classes(classes))
            if self.leaves_out_weights and is_main_process:
                during.enter_context(from_part("pretrained_weights.leaving_out")(self, state_dict))
            super().save_pretrained(save_directory, is_main_process, state_dict, *args, **kwargs)

    @property
    def leaves_out_weights(self) -> bool:
        """Whether a configuration, the model's or its vision encoder's, has `save_frozen_weights=False`."""
        configs = self.config, getattr(self.config, "vision_config", None)
        return not all(getattr(config, "save_frozen_weights", True) for config in configs)

    def check_visual_inputs(
        self, features: Any, mask: Any, keywords: Mapping[str, Any], boxes: Any = None, boxes_needed_by: str = ""
    ) -> None:
        """Raises an error for features, mask or boxes of a wrong shape, missing boxes, and unknown keywords."""
        refuse_unknown_keywords(self, keywords)
        check_visual_features(features, mask, self.config.visual_feature_size)
        check_visual_boxes(boxes, features, boxes_needed_by)

    @staticmethod
    def needed_mask(attention_mask: Any) -> Any:
        """Returns a mask `(batch_size, length)`, or on a CPU `None` if it is all ones (a GPU would synchronize)."""
        if not torch.is_tensor(attention_mask) or attention_mask.device.type != "cpu" or attention_mask.ndim != 2:
            return attention_mask
        return attention_mask if is_tracing(attention_mask) or not attention_mask.bool().numpy().all() else None

    def padding_mask(self, states: Any, attention_mask: Any, keys: Any = None, config: Any = None) -> Any:
        """Returns the bidirectional attention mask from states to keys, by default to themselves, if one is needed."""
        mask = self.needed_mask(attention_mask)
        shared: Any = {"config": config or self.config, "inputs_embeds": states, "encoder_hidden_states": keys}
        return create_bidirectional_mask(**shared, attention_mask=mask, allow_is_bidirectional_skip=mask is None)

    def set_attn_implementation(self, *args: Any, **kwargs: Any) -> None:
        """Sets the attention of all parts except transformers backbones, because many have no choice of attention."""
        encoders = [vision for vision in vision_encoders(self).values() if not vision.config.has_own_backbone]
        backbones: list[Any] = [vision._modules.pop("backbone") for vision in encoders]
        try:
            super().set_attn_implementation(*args, **kwargs)
        finally:
            for vision, backbone in zip(encoders, backbones, strict=True):
                vision.backbone = backbone


@contextmanager
def registered_for_auto_classes(auto_classes: Mapping[Any, str]) -> Iterator[None]:
    """Makes objects of some classes save their code inside the `with` block."""
    before = {cls: cls._auto_class for cls in auto_classes}
    try:
        for cls, auto in auto_classes.items():
            cls.register_for_auto_class(auto)
        yield
    finally:
        for cls, auto in before.items():
            cls._auto_class = auto


def make_vision_encoder(config: Any) -> Any:
    """Makes the [`VisionModel`] of a model's `vision_config`; returns `None` without one."""
    return None if config is None else from_part("modeling_vision.VisionModel")(config)


def vision_of(model: Any) -> Any:
    """Returns the vision encoder of a model; raises a ValueError if it has none."""
    if model.vision is None:
        raise ValueError("This model has no vision encoder: pass visual_features, or use hf-ngsan attach-vision.")
    return model.vision


def vision_encoders(model: nn.Module) -> dict[str, Any]:
    """Returns the vision encoders in a model, which may itself be one, by their names."""
    modules = model.named_modules()
    return {name: module for name, module in modules if getattr(type(module), "is_vision_encoder", False)}


KNOWN_KEYWORDS = {
    *TransformersKwargs.__optional_keys__,
    "attn_implementation",  # for this call only, see `captioning.WordDecoder`
    "output_cross_attentions",
    "pixel_values",  # for visual features, generate() creates a mask of ones for pixels
    "return_dict",
    "use_cache",  # has no effect without a cache
}
# Decorates a `forward` with a cache like those of transformers until that version.
accepts_old_cache_name = deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")


def refuse_unknown_keywords(model: Any, keywords: Mapping[str, Any]) -> None:
    """Raises a TypeError for arguments that no part of a model reads, such as a misspelt mask; `None` is accepted."""
    known = KNOWN_KEYWORDS.union(f"output_{name}" for name in model._can_record_outputs or ())
    unknown = [name for name, value in keywords.items() if value is not None and name not in known]
    if unknown:
        names = ", ".join(unknown)
        raise TypeError(f"{type(model).__name__} has no argument {names}; see the docstring of forward.")


def check_exactly_one(**inputs: Any) -> None:
    """Raises a ValueError unless exactly one of these inputs is not `None`."""
    if sum(value is not None for value in inputs.values()) != 1:
        raise ValueError(f"Pass exactly one of {' and '.join(inputs)}.")


def check_visual_features(
    features: torch.Tensor | None, mask: torch.Tensor | None, feature_size: int | None, name: str = "attention_mask"
) -> None:
    """Raises a ValueError unless features are `(batch_size, num_regions, feature_size)` and their mask matches."""
    shape, masked = (None if tensor is None else tuple(tensor.shape) for tensor in (features, mask))
    if shape is None or len(shape) != 3 or shape[2] != feature_size or 0 in shape or masked not in (None, shape[:2]):
        expected = f"(batch_size, num_regions, {feature_size})"
        raise ValueError(f"visual_features have the shape {shape}, {name} {masked}; the model needs {expected}.")


def check_visual_boxes(boxes: torch.Tensor | None, features: torch.Tensor, needed_by: str) -> None:
    """Raises a ValueError unless boxes are `(batch_size, num_regions, 4)`, or are missing and `needed_by` is empty."""
    shape, expected = None if boxes is None else tuple(boxes.shape), (*features.shape[:2], 4)
    if shape != expected and (shape or needed_by):
        raise ValueError(f"visual_boxes have the shape {shape}; {needed_by or 'these features'} needs {expected}.")

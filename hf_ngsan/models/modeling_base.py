"""The base of all models: code and weights of their checkpoints, and what they support."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import TransformersKwargs, logging
from transformers.utils.deprecation import deprecate_kwarg

from .configuration_hub import from_part, registered_for_auto_classes

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class LeftOutPart:
    """A frozen part of a model whose weights are left out of its checkpoints.

    Attributes:
        title: its name for a person.
        prefix: of the names of its weights in the model.
        module: the part, or the module that it belongs to.
        config: the configuration whose `save_frozen_weights` leaves them out.
        source: the folder, package or Hub repository that has them.
        load: returns the source's weights by their names in `module`.
    """

    title: str
    prefix: str
    module: nn.Module
    config: Any
    source: str
    load: Callable[[], Mapping[str, torch.Tensor]]

    def unchanged_weights(self, weights: Mapping[str, torch.Tensor]) -> set[str]:
        """Returns the names in the model of the weights that loading would restore; none if one of them differs."""
        try:
            source = {self.prefix + name: weight for name, weight in self.load().items()}
        except (OSError, ValueError):  # loading could not take them from there
            return set()
        own = {name: weights.get(name) for name in source}
        same = all(
            weight is not None and torch.equal(weight.cpu(), source[name].to("cpu", weight.dtype))
            for name, weight in own.items()
        )
        return set(own) if same else set()


class HubPreTrainedModel(PreTrainedModel):
    """A model whose checkpoints can carry its code, and can leave out frozen weights that another source has.

    A model that was loaded from a checkpoint with code saves and pushes the code again. Weights are left out where a
    configuration has `save_frozen_weights=False`, unless they are no longer those of the source: then they are saved,
    and the saved configuration has `save_frozen_weights=True`. A module with a method `initialize` initializes itself.
    """

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if hasattr(module, "initialize"):
            module.initialize()  # type: ignore[operator]

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        loaded = super().from_pretrained(*args, **kwargs)
        for part in (loaded[0] if isinstance(loaded, tuple) else loaded).left_out_parts():
            part.module.load_state_dict(part.load(), strict=False)
        return loaded

    def save_pretrained(
        self,
        save_directory: str | os.PathLike,
        is_main_process: bool = True,
        state_dict: dict | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        weights = self.state_dict() if state_dict is None else state_dict
        always, left_out, changed = self._keys_to_ignore_on_save, set(), []
        for part in self.left_out_parts() if is_main_process else ():
            names = part.unchanged_weights(weights)
            left_out |= names
            if not names:
                changed.append(part.config)
                logger.warning(f"The weights of the {part.title} are saved, as they are not those of {part.source}.")
        try:
            self._keys_to_ignore_on_save = left_out.union(always or ())
            for config in changed:
                config.save_frozen_weights = True
            with registered_for_auto_classes(self.classes_with_code() if self.has_code else {}):
                super().save_pretrained(save_directory, is_main_process, state_dict, *args, **kwargs)
        finally:
            self._keys_to_ignore_on_save = always
            for config in changed:
                config.save_frozen_weights = False

    def push_to_hub(  # type: ignore[override]  # transformers wraps its own
        self, repo_id: str, *, processor: Any = None, **options: Any
    ) -> Any:
        """Uploads the model and its code in one commit.

        Args:
            repo_id: repository on the Hub, made if absent.
            processor: the model's processor. With it the installed package uploads a whole checkpoint, with a card
                of the known facts; without it, or from code of the Hub, transformers uploads the model alone.
            options: as in transformers: `private`, `token`, `revision`, `commit_message` and so on.
        """
        package = sys.modules.get(type(self).__module__.partition(".")[0])  # not imported: code from the Hub has none
        push = getattr(package, "push_to_hub", None)
        if processor is not None and push is not None:
            return push(self, processor, repo_id, **options)
        with registered_for_auto_classes(self.classes_with_code()):
            return super().push_to_hub(repo_id, **options)  # type: ignore[arg-type]

    @property
    def has_code(self) -> bool:
        """Whether the model was loaded from a checkpoint with code."""
        return bool(getattr(self.config, "auto_map", None))

    def classes_with_code(self) -> dict[type, str]:
        """Returns the auto classes of the model and its configuration; none for a part of a model."""
        find = getattr(self.config, "auto_class_of", None)
        auto_class = None if find is None else find(type(self))
        return {type(self.config): "AutoConfig", type(self): auto_class} if auto_class else {}

    def left_out_parts(self) -> list[LeftOutPart]:
        """Returns the parts that are left out of checkpoints; a subclass adds those that are no backbones."""
        return [
            LeftOutPart(
                title="backbone",
                prefix=f"{path}.backbone.".lstrip("."),
                module=vision.backbone,
                config=vision.config,
                source=vision.config.pretrained,
                load=vision.pretrained_weights,
            )
            for path, vision in vision_encoders(self).items()
            if not vision.config.save_frozen_weights
        ]

    def set_attn_implementation(self, *args: Any, **kwargs: Any) -> None:
        """Chooses the attention of all but backbones, many of which have one kind or none."""
        encoders = list(vision_encoders(self).values())
        backbones: list[Any] = [vision._modules.pop("backbone") for vision in encoders]
        try:
            super().set_attn_implementation(*args, **kwargs)
        finally:
            for vision, backbone in zip(encoders, backbones, strict=True):
                vision.backbone = backbone


def make_vision_encoder(config: Any) -> Any:
    """Makes the [`VisionModel`] of a model's `vision_config`; `None` without one."""
    return None if config is None else from_part("modeling_vision.VisionModel")(config)


def vision_of(model: Any) -> Any:
    """Returns the vision encoder of a model; raises a ValueError if it has none."""
    if model.vision is None:
        raise ValueError(
            "This model has no vision encoder (vision_config is None): give visual_features, not pixel_values, or give "
            "it the encoder of its features with hf-ngsan attach-vision."
        )
    return model.vision


def vision_encoders(model: nn.Module) -> dict[str, Any]:
    """Returns the vision encoders of a model, or itself, by their names in it."""
    modules = model.named_modules()
    return {name: module for name, module in modules if getattr(type(module), "is_vision_encoder", False)}


KNOWN_KEYWORDS = frozenset(
    {
        *TransformersKwargs.__optional_keys__,
        "attn_implementation",  # of this call alone, see `captioning.WordDecoder`
        "output_cross_attentions",
        "pixel_values",  # where visual features are given in place of pixels, generate() makes up ones for pixels
        "return_dict",
        "use_cache",  # without effect where there is no cache
    }
)

accepts_old_cache_name = deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
"""Decorates a `forward` with a cache, as transformers decorates its own until that version."""


def refuse_unknown_keywords(model: Any, keywords: Mapping[str, Any]) -> None:
    """Raises a TypeError for arguments that no part of a model reads (`None` passes), such as a misspelt mask."""
    known = KNOWN_KEYWORDS.union(f"output_{name}" for name in model._can_record_outputs or ())
    unknown = [name for name, value in keywords.items() if value is not None and name not in known]
    if unknown:
        names = ", ".join(unknown)
        raise TypeError(f"{type(model).__name__} takes no argument {names}; see the docstring of forward.")

"""Checkpoints without frozen weights that another source has, for configurations with `save_frozen_weights=False`.

Weights that are no longer those of their source are saved, whatever the configuration says.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from .modeling_base import vision_encoders

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


def left_out_parts(model: Any) -> list[LeftOutPart]:
    """Returns the parts that are left out of the checkpoints of a model: backbones, and those that it names itself."""
    backbones = [
        LeftOutPart(
            title="backbone",
            prefix=f"{path}.backbone.",
            module=vision.backbone,
            config=vision.config,
            source=vision.config.pretrained,
            load=vision.pretrained_weights,
        )
        for path, vision in vision_encoders(model).items()
        if path and not vision.config.save_frozen_weights  # saved alone it has its weights: nothing else would be left
    ]
    return [*backbones, *(model.left_out_parts() if hasattr(model, "left_out_parts") else ())]


def load_left_out_weights(model: Any) -> None:
    """Takes the weights that a checkpoint lacks from their sources."""
    for part in left_out_parts(model):
        part.module.load_state_dict(part.load(), strict=False)


@contextmanager
def leaving_out(model: Any, state_dict: Mapping[str, torch.Tensor] | None) -> Iterator[None]:
    """Keeps `save_pretrained` within the `with` block from writing weights that loading takes from their sources.

    Where weights have changed, the saved configuration has `save_frozen_weights=True`.
    """
    weights = model.state_dict() if state_dict is None else state_dict
    always, left_out, changed = model._keys_to_ignore_on_save, set(), []
    for part in left_out_parts(model):
        names = part.unchanged_weights(weights)
        left_out |= names
        if not names:
            changed.append(part.config)
            logger.warning(f"The weights of the {part.title} are saved, as they are not those of {part.source}.")
    try:
        model._keys_to_ignore_on_save = left_out.union(always or ())
        for config in changed:
            config.save_frozen_weights = True
        yield
    finally:
        model._keys_to_ignore_on_save = always
        for config in changed:
            config.save_frozen_weights = False

"""Parts of a model that are not trained, and low-rank adapters that are trained in place of its weights.

training:
  freeze: [vision_model]
lora:
  rank: 8
  target_modules: [query, value]
"""

import copy
import difflib
import fnmatch
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import is_peft_available

from ..io.weight_sources import complete_sources, write_licence
from ..loading.models import save_model
from .settings import setting

ADAPTER = "default"
"""PEFT's name for the only adapter of a model."""
WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adapters (Hu et al. 2022) for models of transformers: W becomes W + alpha / rank * B A."""

    rank: int | None = setting(None, "rows of A; null = no adapters, the weights themselves are trained", minimum=1)
    alpha: float = setting(16.0, "scale of the adapters, divided by rank", minimum=0.0)
    dropout: float = setting(0.0, "dropout of the inputs of A", minimum=0.0, below=1.0)
    target_modules: tuple[str, ...] = setting(
        (), "names, or ends of names, of the linear layers that get adapters; [] = all but the output layer"
    )
    merge: bool = setting(
        True,
        "also save whole models, adapters added to their weights, which every command reads; false = adapters alone",
    )


class UnknownPartError(ValueError):
    """A name in `training.freeze` or `lora.target_modules` that no part of the model has."""


def freeze(model: PreTrainedModel, names: Iterable[str]) -> None:
    """Stops the training of some parts of a model.

    Args:
        model: the model.
        names: names of modules or parameters, or patterns of names of parameters with `*` and `?`.

    Raises:
        UnknownPartError: no part has such a name, or nothing is left to train.
    """
    for name in names:
        found = [one for at, one in model.named_parameters() if at.startswith(f"{name}.") or fnmatch.fnmatch(at, name)]
        if not found:
            raise UnknownPartError(f"training.freeze: {unknown(name, dict(model.named_modules()))}")
        for parameter in found:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UnknownPartError("training.freeze leaves no weight to train; name fewer parts.")


def add_adapters(model: Any, settings: LoraSettings) -> None:
    """Gives a model of transformers adapters, which are then all that is trained.

    Raises:
        ImportError: PEFT is not installed.
        UnknownPartError: no linear layer has such a name.
    """
    if not is_peft_available():
        raise ImportError("lora needs PEFT, which is not installed; pip install hf-ngsan[lora].")
    from peft import LoraConfig, inject_adapter_in_model

    layers = linear_layers(model)
    chosen = [one for one in layers if model.get_submodule(one) is not model.get_output_embeddings()]
    if settings.target_modules:
        chosen = []
        for name in settings.target_modules:
            found = [layer for layer in layers if layer == name or layer.endswith(f".{name}")]
            if not found:
                ends = {layer.rpartition(".")[2] for layer in layers}
                raise UnknownPartError(f"lora.target_modules: {unknown(name, [*ends, *layers])}")
            chosen += found
    sizes: dict[str, Any] = {"r": settings.rank, "lora_alpha": settings.alpha}
    config = LoraConfig(
        **sizes,
        lora_dropout=settings.dropout,
        target_modules="|".join(map(re.escape, dict.fromkeys(chosen))),  # a list would match more by its ends
        base_model_name_or_path=model.name_or_path,
    )
    inject_adapter_in_model(config, model, ADAPTER)  # transformers 5.24 itself asks for a PEFT that PyPI has not


def linear_layers(model: torch.nn.Module) -> list[str]:
    """Returns the names of linear layers, without those that share their weights with an embedding."""
    shared = {id(one.weight) for one in model.modules() if isinstance(one, torch.nn.Embedding)}
    kinds = (torch.nn.Linear, Conv1D)  # the latter is GPT-2's
    return [name for name, one in model.named_modules() if isinstance(one, kinds) and id(one.weight) not in shared]


def unknown(name: str, known: Iterable[str]) -> str:
    known = sorted({one for one in known if one})
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:5]
    return f"the model has no part {name!r}; near ones are {', '.join(near)}."


def has_adapters(model: Any) -> bool:
    return hasattr(model, "peft_config")


def adapter_weights(model: Any) -> dict[str, torch.Tensor]:
    """Returns the weights of adapters by PEFT's names in files, the same tensors as the model's."""
    weights = {name: value for name, value in model.state_dict().items() if ".lora_" in name}
    return {f"base_model.model.{name.replace(f'.{ADAPTER}.', '.')}": value for name, value in weights.items()}


def save_adapted(model: Any, processor: Any, folder: str | os.PathLike, merge: bool) -> None:
    """Saves a model that may have adapters, and its processor.

    Args:
        model, processor, folder: see [`~hf_ngsan.loading.models.save_model`]. Adapters are written into a folder
            `adapter` there, in PEFT's format.
        merge: whether a model with adapters is also saved whole, with the adapters added to its weights.
    """
    if has_adapters(model):
        place = Path(folder) / "adapter"
        model.peft_config[ADAPTER].save_pretrained(str(place))
        save_file({name: value.contiguous() for name, value in adapter_weights(model).items()}, place / WEIGHTS)
        if not merge:
            complete_sources(model)
            model.config.save_pretrained(folder)
            processor.save_pretrained(folder)
            write_licence(model, folder)
            return
        model = merged(model)
    save_model(model, processor, folder)


def merged(model: Any) -> Any:
    """Returns a copy of a model with its adapters added to its weights."""
    from peft.tuners.lora import LoraLayer

    whole = copy.deepcopy(model)
    for name, layer in list(whole.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge()
            whole.set_submodule(name, layer.get_base_layer())
    del whole.peft_config
    return whole


@torch.no_grad()
def load_weights(model: Any, folder: Path) -> None:
    """Gives a model the weights of a folder of [`save_adapted`]; where it has adapters, these alone."""
    if not has_adapters(model):
        model.load_state_dict(type(model).from_pretrained(folder).state_dict())
        return
    saved = load_file(folder / "adapter" / WEIGHTS)
    for name, value in adapter_weights(model).items():
        value.copy_(saved[name])

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
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import is_peft_available

from ..io.weight_sources import complete_sources, write_licence
from ..loading.models import is_guest, save_model
from .config import ConfigError, TrainingConfig
from .settings import LoraSettings

ADAPTER = "default"
"""PEFT's name for the only adapter of a model."""
WEIGHTS = "adapter_model.safetensors"


def adapt(model: PreTrainedModel, config: TrainingConfig) -> None:
    """Adds the adapters of the section `lora`, and freezes what `training.freeze` names.

    Raises:
        ConfigError: unknown names, nothing left to train, adapters for a model of this package, or no PEFT.
    """
    if config.lora.rank is not None:
        if not is_guest(model.config):
            raise ConfigError("lora is for models of transformers; leave the section out.")
        add_adapters(model, config.lora)
    freeze(model, config.training.freeze)


def freeze(model: PreTrainedModel, names: Iterable[str]) -> None:
    """Stops the training of modules or parameters, by names or patterns of names of parameters with `*` and `?`."""
    for name in names:
        frozen = [
            parameter
            for known, parameter in model.named_parameters()
            if known.startswith(f"{name}.") or fnmatch.fnmatch(known, name)
        ]
        if not frozen:
            raise ConfigError(f"training.freeze: {unknown(name, dict(model.named_modules()))}")
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("training.freeze leaves no weight to train; name fewer parts.")


def add_adapters(model: Any, settings: LoraSettings) -> None:
    """Gives a model of transformers adapters, which are then all that is trained."""
    if not is_peft_available():
        raise ConfigError("lora needs PEFT, which is not installed; pip install hf-ngsan[lora].")
    from peft import LoraConfig, inject_adapter_in_model

    layers = linear_layers(model)
    chosen = [layer for layer in layers if model.get_submodule(layer) is not model.get_output_embeddings()]
    if settings.target_modules:
        chosen = []
        for name in settings.target_modules:
            named = [layer for layer in layers if layer == name or layer.endswith(f".{name}")]
            if not named:
                ends = {layer.rpartition(".")[2] for layer in layers}
                raise ConfigError(f"lora.target_modules: {unknown(name, [*ends, *layers])}")
            chosen += named
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
    shared = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear | Conv1D)}
    return [name for name, module in linear.items() if id(module.weight) not in shared]  # Conv1D is GPT-2's


def unknown(name: str, known: Iterable[str]) -> str:
    known = sorted({*known} - {""})
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

"""Optimization: frozen parts, low-rank adapters, Adam, learning rates and averaged weights.

The learning rate is a pure function of the position in the run, so a resumed run needs no scheduler state.
"""

import copy
import difflib
import fnmatch
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import is_peft_available

from ..loading.models import is_guest, save_model
from ..models.modeling_base import vision_encoders
from .config import ConfigError, LoraSettings, ScheduleSettings, TrainingConfig, TrainingSettings

ADAPTER = "default"  # PEFT's name for a single adapter
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def adapt(model: PreTrainedModel, config: TrainingConfig) -> None:
    """Adds the adapters of the section `lora` to a model."""
    if config.lora.rank is not None:
        if not is_guest(model.config):
            raise ConfigError("lora is for models of transformers; leave the section out.")
        add_adapters(model, config.lora)


def freeze(model: PreTrainedModel, names: Iterable[str]) -> None:
    """Freezes the parts named in `training.freeze`."""
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


def unknown(name: str, known: Iterable[str]) -> str:
    known = sorted({*known} - {""})
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:5]
    return f"the model has no part {name!r}; similar names are {', '.join(near)}."


def add_adapters(model: Any, settings: LoraSettings) -> None:
    """Adds adapters to a model of transformers; only these are then trained."""
    if not is_peft_available():
        raise ConfigError('lora needs PEFT; install it with pip install "hf-ngsan[lora]".')
    from peft import LoraConfig, inject_adapter_in_model

    tied = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    linear = [(name, part) for name, part in model.named_modules() if isinstance(part, torch.nn.Linear | Conv1D)]
    layers = [name for name, part in linear if id(part.weight) not in tied]  # Conv1D is used by GPT-2
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
        target_modules="|".join(map(re.escape, dict.fromkeys(chosen))),  # a list would also match suffixes
        base_model_name_or_path=model.name_or_path,
    )
    inject_adapter_in_model(config, model, ADAPTER)  # transformers 5.24 itself requires a PEFT that is not on PyPI


def adapter_weights(model: Any) -> dict[str, torch.Tensor]:
    """Returns the adapter weights by PEFT's names in files; the tensors are shared with the model."""
    weights = {name: value for name, value in model.state_dict().items() if ".lora_" in name}
    return {f"base_model.model.{name.replace(f'.{ADAPTER}.', '.')}": value for name, value in weights.items()}


def save_adapted(model: Any, processor: Any, folder: str | os.PathLike) -> None:
    """Saves a model with merged adapters, and its processor; the adapters are also saved in `adapter`."""
    if hasattr(model, "peft_config"):
        from peft.tuners.lora import LoraLayer

        place = Path(folder) / "adapter"
        model.peft_config[ADAPTER].save_pretrained(str(place))
        tensors = {name: value.contiguous() for name, value in adapter_weights(model).items()}
        save_file(tensors, place / ADAPTER_WEIGHTS)
        model = copy.deepcopy(model)
        for name, layer in list(model.named_modules()):
            if isinstance(layer, LoraLayer):
                layer.merge()
                model.set_submodule(name, layer.get_base_layer())
        del model.peft_config
    save_model(model, processor, folder)


@torch.no_grad()
def load_weights(model: Any, folder: Path) -> None:
    """Loads the weights in a folder of [`save_adapted`] into a model; if it has adapters, loads only these."""
    if hasattr(model, "peft_config"):  # has adapters
        copy_into(adapter_weights(model), load_file(folder / "adapter" / ADAPTER_WEIGHTS))
    else:
        model.load_state_dict(type(model).from_pretrained(folder).state_dict())


def make_optimizer(model: torch.nn.Module, settings: TrainingSettings, fused: bool) -> torch.optim.Optimizer:
    """Returns Adam for the weights that are not frozen; `rate_factor` of a group multiplies the learning rate.

    Weight decay applies to all weights, as in the releases that use it, such as BLIP, and in the training of the
    packaged models. Transformers' `Trainer` excludes norms and biases.
    """
    vision, vision_rate = trained_weights_of_vision(model), settings.vision_learning_rate
    if vision_rate is not None and not vision:
        raise ConfigError("training.vision_learning_rate needs a vision encoder with frozen: false; leave it out.")
    text: set[torch.nn.Parameter] = set()
    text_rate, encoder = getattr(settings, "text_learning_rate", None), getattr(model, "text", None)
    if text_rate is not None and isinstance(encoder, torch.nn.Module):
        text = {weight for weight in encoder.parameters() if weight.requires_grad}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": [weight for weight in trained if weight not in vision | text], "rate_factor": 1.0}]
    for group, rate in ((vision, vision_rate), (text, text_rate)):
        if group:
            factor = 1.0 if rate is None or not settings.learning_rate else rate / settings.learning_rate
            groups.append({"params": [weight for weight in trained if weight in group], "rate_factor": factor})
    decay: dict[str, Any] = {"betas": settings.adam_betas, "weight_decay": settings.weight_decay}
    return torch.optim.AdamW(groups, lr=settings.learning_rate, eps=settings.adam_epsilon, fused=fused, **decay)


def trained_weights_of_vision(model: torch.nn.Module) -> set[torch.nn.Parameter]:
    """Returns the parameters of a model's vision encoders that are not frozen."""
    encoders = vision_encoders(model).values()
    return {weight for encoder in encoders for weight in encoder.parameters() if weight.requires_grad}


def learning_rate_at(step: int, steps_per_epoch: int, settings: ScheduleSettings) -> float:
    """Returns the learning rate of an update.

    The default is section 5.1 of Guo et al. 2020: min(t * 1e-4, 3e-4) in epoch t, counted from 1, and halved every 3
    epochs after 6 epochs. The paper does not define the first halving; here it is in epoch 7 (`decay_start` + 1).

    `step` is the number of an update in the stage, counted from 0. `cosine` warms up and decays with each update, to 0
    at the end of `epochs`. `inverse_sqrt` also changes with each update and, after `warmup_updates`, decays with
    1 / sqrt(updates) (Vaswani et al. 2017, eq. 3). The other schedules change between epochs only.
    """
    if settings.schedule == "inverse_sqrt":
        warmup = max(settings.warmup_updates or settings.warmup_epochs * steps_per_epoch, 1)
        return settings.learning_rate * min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))
    if settings.schedule == "cosine":
        warmup = settings.warmup_epochs * steps_per_epoch
        if step < warmup:
            return settings.learning_rate * ((step + 1) / warmup)
        rest = settings.epochs * steps_per_epoch - warmup
        return settings.learning_rate * (0.5 * (1 + math.cos(math.pi * min((step - warmup) / max(rest, 1), 1.0))))
    epoch = step // steps_per_epoch + 1
    factor = min(epoch / settings.warmup_epochs, 1.0) if settings.warmup_epochs else 1.0
    if settings.schedule == "step":
        decays = max(0, math.ceil((epoch - settings.decay_start) / settings.decay_every))
        if settings.max_decays is not None:
            decays = min(decays, settings.max_decays)
        factor *= settings.decay_factor**decays
    return settings.learning_rate * factor


class WeightAverage:
    """Running average `tensors` of every trained weight and every saved floating-point buffer of a model.

    After update n, counted from 1, the average moves by `1 - min(decay, (1 + n) / (10 + n))` towards the weights. It
    therefore forgets the random initial weights quickly, like TensorFlow's `ExponentialMovingAverage`.
    """

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        self.decay = decay
        frozen = {name for name, weight in model.named_parameters(remove_duplicate=False) if not weight.requires_grad}
        states = model.state_dict().items()
        self.weights = {name: state for name, state in states if state.is_floating_point() and name not in frozen}
        self.tensors = {name: tensor.clone() for name, tensor in self.weights.items()}

    def restart(self) -> None:
        """Sets the average to the current weights."""
        copy_into(self.tensors, self.weights)

    def update(self, num_updates: int) -> None:
        move = get_ema_multi_avg_fn(min(self.decay, (1 + num_updates) / (10 + num_updates)))
        move([*self.tensors.values()], [*self.weights.values()], num_updates)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Uses the averaged weights inside the `with` block, and restores the original weights bit-exactly after it."""
        trained = {name: tensor.clone() for name, tensor in self.weights.items()}
        copy_into(self.weights, self.tensors)
        try:
            yield
        finally:
            copy_into(self.weights, trained)


@torch.no_grad()
def copy_into(targets: dict[str, torch.Tensor], sources: dict[str, torch.Tensor]) -> None:
    for name, target in targets.items():
        target.copy_(sources[name])

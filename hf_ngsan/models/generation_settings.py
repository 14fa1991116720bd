"""Checks of the settings of `generate()` in a checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .configuration_hub import ConfigurationError, is_finite

MAX_SEQUENCES = 1_000
"""Maximal beams and texts for one input, as of an option of the commands."""
MAX_COUNT = 10_000
"""Maximal tokens of a text: far above any use, and still within memory."""
FLAGS = (
    "do_sample",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "return_dict_in_generate",
    "renormalize_logits",
    "remove_invalid_values",
)
COUNTS = {
    "num_beams": (1, MAX_SEQUENCES),
    "num_beam_groups": (1, MAX_SEQUENCES),
    "num_return_sequences": (1, MAX_SEQUENCES),
    "max_length": (1, MAX_COUNT),
    "max_new_tokens": (1, MAX_COUNT),
    "min_length": (0, MAX_COUNT),
    "min_new_tokens": (0, MAX_COUNT),
    "no_repeat_ngram_size": (0, MAX_COUNT),
}
"""The smallest and the largest value of settings that time and memory depend on."""
NUMBERS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "top_h",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "length_penalty",
    "repetition_penalty",
)
TOKEN = ("pad_token_id", "bos_token_id", "forced_bos_token_id")
TOKENS = ("eos_token_id", "forced_eos_token_id", "decoder_start_token_id", "suppress_tokens", "begin_suppress_tokens")


def read_generation_settings(folder: str) -> dict | None:
    """Returns the content of a folder's `generation_config.json`; `None` without the file.

    Raises:
        ConfigurationError: it is no JSON object.
    """
    try:
        settings = json.loads((Path(folder) / "generation_config.json").read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{folder}: generation_config.json is not JSON ({error}).") from error
    if not isinstance(settings, dict):
        raise ConfigurationError(f"{folder}: generation_config.json holds no settings but {settings!r:.60}.")
    return settings


def check_generation_settings(settings: Mapping[str, Any], vocab_size: int) -> None:
    """Raises a ConfigurationError that names the setting unless `generate()` can take the values.

    Args:
        settings: of a `GenerationConfig`; `None` stands for its default.
        vocab_size: of the model; every token lies below it.
    """
    check_counts(settings)
    for name, value in settings.items():
        if value is None:
            continue
        if name in FLAGS and not isinstance(value, bool):
            refuse(name, value, "true or false")
        if name in NUMBERS and not is_finite(value):
            refuse(name, value, "a finite number")
        if name == "early_stopping" and not isinstance(value, bool) and value != "never":
            refuse(name, value, "true, false or 'never'")
        if name in TOKEN and not is_token(value, vocab_size):
            refuse(name, value, f"the id of one of the model's {vocab_size} words")
        if name in TOKENS and not is_token(value, vocab_size):
            listed = isinstance(value, list) and (value or not name.endswith("_id"))
            if not listed or not all(is_token(token, vocab_size) for token in value):
                refuse(name, value, f"one or several ids of the model's {vocab_size} words")


def check_counts(settings: Mapping[str, Any]) -> None:
    """Raises a ConfigurationError that names the setting for beams, texts or tokens that nobody would ask for."""
    for name, (least, most) in COUNTS.items():
        value = settings.get(name)
        if value is not None and not (is_whole(value) and least <= value <= most):
            refuse(name, value, f"a whole number between {least} and {most:,}")


def refuse(name: str, value: Any, wanted: str) -> None:
    raise ConfigurationError(f"{name} in generation_config.json is {value!r:.60}; it must be {wanted}.")


def is_token(value: Any, vocab_size: int) -> bool:
    return is_whole(value) and 0 <= value < vocab_size


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


__all__ = ["check_counts", "check_generation_settings", "read_generation_settings"]

"""Arguments of `generate()` that a command line gives, and those that the scores of generated text depend on."""

from collections.abc import Mapping
from typing import Any

from ..io.bounds import DEFAULT_CAPTION_LENGTH

GENERATION_OPTIONS = ("num_beams", "max_new_tokens", "length_penalty")


def checked_options(given: dict[str, Any], own: Any) -> dict[str, Any]:
    """Returns arguments of `generate()` that replace a model's own settings.

    Raises:
        ValueError: a length penalty with one beam, where it has no effect.
    """
    if "length_penalty" in given and given.get("num_beams", own.num_beams or 1) == 1:
        raise ValueError("--length-penalty needs several beams; ask for them with --num-beams.")
    return given


def generation_settings(generation: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that the scores of generated text depend on; `None` for one without effect.

    Args:
        generation: the model's settings of `generate()`.
        options: arguments of `generate()` that replace them.
    """
    settings = {**generation, **{name: value for name, value in options.items() if value is not None}}
    beams = settings.get("num_beams") or 1
    penalty = settings.get("length_penalty")
    return {
        "beams": beams,
        "length_penalty": (1.0 if penalty is None else penalty) if beams > 1 else None,
        "max": settings.get("max_new_tokens") or settings.get("max_length") or DEFAULT_CAPTION_LENGTH,
    }

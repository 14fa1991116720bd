"""Arguments of `generate()` that a person gives, checked, and those that the scores of generated text depend on."""

import difflib
from collections.abc import Mapping
from typing import Any

from ..io import DEFAULT_CAPTION_LENGTH

OWN_ARGUMENTS = ("required_words", "candidates")
"""Arguments of the searches of [`~hf_ngsan.models.decoding`] that transformers' `GenerationConfig` does not have."""
NEEDS = {"diversity_penalty": "num_beam_groups", "candidates": "penalty_alpha"}
TEXTS = ("cache_implementation", "early_stopping", "stop_strings")
"""Arguments that may be text."""


def generation_keys() -> set[str]:
    """Returns the arguments of `generate()` that change its texts, and not the kind of its output."""
    from transformers import GenerationConfig

    other = ("_", "output_", "return_", "transformers_version")
    return {*OWN_ARGUMENTS, *(name for name in vars(GenerationConfig()) if not name.startswith(other))}


def checked_generation(given: Mapping[str, Any], own: Any, several: bool = False) -> dict[str, Any]:
    """Returns arguments of `generate()` that replace a model's own settings.

    Args:
        given: the arguments; those of the pipelines, such as `required_words`, too.
        own: `generation_config` of the model.
        several: whether an input may get several texts.

    Raises:
        ValueError: an unknown argument, a text in place of a number, an argument without effect, such as
            `length_penalty` with one beam, or `num_return_sequences` where there is one text for each input.
    """
    from transformers import GenerationConfig

    known = generation_keys() - ({"num_return_sequences"} if not several else set())
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {close[0]}?" if close else "this model's generate() does not take it here."
            raise ValueError(f"There is no argument {name!r:.60} of generation; {advice}")
        if isinstance(value, str) and name not in TEXTS:
            raise ValueError(f"{name} is {value!r:.60}, which is no number and neither true nor false.")
    for name, other in NEEDS.items():
        if name in given and other not in given:
            raise ValueError(f"{name} has an effect with {other} only; give both.")
    context = {"num_beams": 1 if "penalty_alpha" in given else own.num_beams or 1, "do_sample": own.do_sample}
    settings = {**context, **{name: value for name, value in given.items() if name not in OWN_ARGUMENTS}}
    try:
        GenerationConfig(**settings).validate(strict=True)
    except ValueError as error:
        reasons = [line.removeprefix("- ") for line in str(error).splitlines() if line.startswith("- ")]
        raise ValueError(" ".join(reasons) or str(error)) from None
    return dict(given)


def generation_settings(generation: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that the scores of generated text depend on; `None` for one without effect.

    Args:
        generation: the model's settings of `generate()`.
        options: arguments of `generate()` that replace them, among other options.
    """
    settings = {**generation, **{name: value for name, value in options.items() if value is not None}}
    beams = settings.get("num_beams") or 1
    penalty = settings.get("length_penalty")
    found = {
        "beams": beams,
        "length_penalty": (1.0 if penalty is None else penalty) if beams > 1 else None,
        "max": settings.get("max_new_tokens") or settings.get("max_length") or DEFAULT_CAPTION_LENGTH,
    }
    others = generation_keys() - {"num_beams", "length_penalty", "max_new_tokens", "max_length"}
    return found | {name: options[name] for name in sorted(others & options.keys()) if options[name] is not None}

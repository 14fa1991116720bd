"""Options of `generate()` on a command line, and what of them the scores of generated text depend on."""

import argparse
from collections.abc import Mapping
from typing import Any

from ..argument_types import at_most
from ..bounds import LONGEST_CAPTION, MOST_CAPTIONS


def add_generation_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num-beams", type=at_most(MOST_CAPTIONS), metavar="N", help="width of the beam search (the model's)"
    )
    parser.add_argument(
        "--max-new-tokens",
        type=at_most(LONGEST_CAPTION),
        metavar="N",
        help="longest text in tokens, its end included (the model's)",
    )


def generation_settings(generation: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the scores of generated text depend on; `None` for what has no effect.

    Args:
        generation: the model's settings of `generate()`.
        options: arguments of `generate()` that were given in their place.
    """
    settings = {**generation, **{name: value for name, value in options.items() if value is not None}}
    beams = settings.get("num_beams") or 1
    penalty = settings.get("length_penalty") or 1.0
    return {
        "beams": beams,
        "length_penalty": penalty if beams > 1 else None,
        "max": settings.get("max_new_tokens") or settings.get("max_length"),
    }

"""Keyword arguments that every `forward` accepts besides its own."""

from collections.abc import Mapping
from typing import Any

from transformers.utils import TransformersKwargs
from transformers.utils.deprecation import deprecate_kwarg

KNOWN_KEYWORDS = frozenset(
    {
        *TransformersKwargs.__optional_keys__,
        "attn_implementation",  # of this call alone, see `transformer.WordDecoder`
        "output_cross_attentions",
        "output_visualness",
        "pixel_values",  # where visual features are given in place of pixels, generate() makes up ones for pixels
        "return_dict",
        "use_cache",  # without effect where there is no cache
    }
)

accepts_old_cache_name = deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
"""Decorates a `forward` with a cache, as transformers decorates its own until that version."""


class UnknownArgumentError(TypeError, ValueError):
    """An argument that no part of a model reads; a ValueError too, which `generate()` of transformers raises."""


def refuse_unknown_keywords(model: Any, keywords: Mapping[str, Any]) -> None:
    """Refuses keyword arguments that no part of a model reads, such as a misspelt mask.

    Raises:
        UnknownArgumentError: an unknown argument is not `None`; the message names it.
    """
    unknown = [name for name, value in keywords.items() if value is not None and name not in KNOWN_KEYWORDS]
    if unknown:
        raise UnknownArgumentError(
            f"{type(model).__name__} takes no argument {', '.join(unknown)}; see the docstring of forward."
        )


__all__ = ["UnknownArgumentError", "accepts_old_cache_name", "refuse_unknown_keywords"]

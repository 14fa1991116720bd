"""Figures that explain a captioner: what each word looked at, and what its geometric bias prefers.

Nothing heavy is imported before it is used; figures need matplotlib (the extra `plots`).
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .attention import WordAttention, word_attention
    from .figures import plot_caption, plot_words
    from .geometry import geometric_weights, plot_geometric_weights
    from .plots import MissingPlotsError, check_matplotlib, save_figure

LOCATIONS = {
    "MissingPlotsError": "plots",
    "WordAttention": "attention",
    "check_matplotlib": "plots",
    "geometric_weights": "geometry",
    "plot_caption": "figures",
    "plot_geometric_weights": "geometry",
    "plot_words": "figures",
    "save_figure": "plots",
    "word_attention": "attention",
}


def __getattr__(name: str):
    if name not in LOCATIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{LOCATIONS[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *LOCATIONS])


__all__ = [
    "MissingPlotsError",
    "WordAttention",
    "check_matplotlib",
    "geometric_weights",
    "plot_caption",
    "plot_geometric_weights",
    "plot_words",
    "save_figure",
    "word_attention",
]

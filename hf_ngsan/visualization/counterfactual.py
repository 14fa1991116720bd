"""Figure of a counterfactual: an image with its boxes and its caption, before and after a change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .figures import draw_labels, draw_weights, show_image, to_pixels
from .plots import ACCENT, INK, QUIET, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_counterfactual(images: Sequence[Any], before: Any, after: Any, names: Sequence[str]) -> Figure:
    """Draws both images with the attention of the word whose log-probability changes most, and those of all words.

    Args:
        images: two `PIL.Image.Image`s or arrays `(H, W, 3)`, before and after the change.
        before, after: objects with `caption`, `words`, `log_probabilities`, `attention` and `boxes`.
        names: names of the regions.

    Raises:
        MissingPlotsError: matplotlib is not installed.
    """
    figure = new_figure(10.2, 3.9)
    first, second, bars = figure.subplots(1, 3)
    both = np.array([before.log_probabilities, after.log_probabilities])
    word = int(np.abs(both[1] - both[0]).argmax()) if both.shape[1] else None
    for panel, image, found in zip((first, second), images, (before, after), strict=True):
        show_image(panel, image, faded=True)
        pixels = to_pixels(np.asarray(found.boxes), image)
        weights = np.zeros(len(pixels)) if word is None else np.asarray(found.attention[word])
        draw_weights(panel, pixels, weights)
        draw_labels(panel, pixels, names)
        panel.set_title(found.caption, fontsize=8, color=INK, wrap=True, parse_math=False)
    if word is not None:
        first.set_xlabel(f"attention of “{before.words[word]}”", fontsize=8, color=QUIET, parse_math=False)
    places = np.arange(both.shape[1])
    bars.barh(-places + 0.18, both[0], height=0.34, color=QUIET, label="before")
    bars.barh(-places - 0.18, both[1], height=0.34, color=ACCENT, label="after")
    bars.set_yticks(-places, before.words, parse_math=False)
    bars.set_xlabel("log-probability of the first caption's words", fontsize=8)
    bars.tick_params(labelsize=8)
    bars.legend(fontsize=8)
    return figure

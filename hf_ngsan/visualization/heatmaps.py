"""Heat maps over an image: the places that a captioner attended to while it predicted each word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .figures import COLUMNS, show_image
from .plots import INK, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike
    from PIL.Image import Image


def plot_word_maps(image: Image | np.ndarray, words: Sequence[str], maps: ArrayLike) -> Figure:
    """Draws an image once for every word of its caption, under a map of the attention of that word.

    Args:
        image: a `PIL.Image.Image` or an array `(height, width, 3)`.
        words: the T words of the caption.
        maps: attention maps `(T, height, width)` of the image, as `pipeline("image-to-text")` returns them with
            `return_attention=True`.

    Raises:
        ValueError: there are no words, or not one map of the image's size for each word.
        MissingPlotsError: matplotlib is not installed.

    Example:

    ```python
    >>> import numpy as np
    >>> from hf_ngsan.visualization import plot_word_maps
    >>> figure = plot_word_maps(np.zeros((6, 8, 3), np.uint8), ["a", "bus"], np.ones((2, 6, 8)))
    >>> [panel.get_title() for panel in figure.axes]
    ['a', 'bus']

    ```
    """
    maps = np.asarray(maps, dtype=np.float32)
    height, width = np.asarray(image).shape[:2]
    if not len(words):
        raise ValueError("The caption has no words, so there is nothing to draw.")
    if maps.shape != (len(words), height, width):
        raise ValueError(
            f"The maps have shape {maps.shape}; for {len(words)} words and this image it must be "
            f"{(len(words), height, width)}."
        )
    columns = min(COLUMNS, len(words))
    rows = math.ceil(len(words) / columns)
    figure = new_figure(2.1 * columns, (2.1 * height / width + 0.35) * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(words) :]:
        panel.set_axis_off()
    for panel, word, weights in zip(panels, words, maps, strict=False):
        show_image(panel, image, faded=True)
        strongest = max(float(weights.max()), 1e-12)
        panel.imshow(weights / strongest, cmap="inferno", vmin=0, vmax=1, alpha=np.sqrt(weights / strongest) * 0.75)
        panel.set_title(word, fontsize=11, color=INK)
    return figure

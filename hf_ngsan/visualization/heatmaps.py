"""Heat maps over an image: the attention of a captioner for each word, or the regions of each word of a question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .figures import COLUMNS, show_map
from .plots import INK, new_figure, panel_rows

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
    figure = new_figure(2.1 * columns, (2.1 * height / width + 0.35) * math.ceil(len(words) / columns))
    for panel, word, weights in zip(panel_rows(figure, len(words), columns), words, maps, strict=True):
        show_map(panel, image, weights)
        panel.set_title(word, fontsize=11, color=INK)
    return figure


def plot_question(
    image: Image | np.ndarray, words: Sequence[str], maps: ArrayLike, answer: str, answer_map: ArrayLike
) -> Figure:
    """Draws an image once for every word of a question, under a map of the regions to which the word mattered.

    The last panel shows the attention of the answer.

    Args:
        image: a `PIL.Image.Image` or an array `(height, width, 3)`.
        words: the T words of the question.
        maps: attention maps `(T, height, width)` of the image, as [`VisualQuestionAnsweringPipeline`] returns them.
        answer: answer to the question.
        answer_map: `(height, width)`, the pipeline's `"answer_attention"`.

    Raises:
        ValueError: there are no words, or not one map of the image's size for each word.
        MissingPlotsError: matplotlib is not installed.

    Example:

    ```python
    >>> import numpy as np
    >>> from hf_ngsan.visualization import plot_question
    >>> image = np.zeros((6, 8, 3), np.uint8)
    >>> figure = plot_question(image, ["what", "color"], np.ones((2, 6, 8)), "red", np.ones((6, 8)))
    >>> [panel.get_title() for panel in figure.axes][:3]
    ['what', 'color', 'answer: red']

    ```
    """
    every_map = [*np.asarray(maps, dtype=np.float32), np.asarray(answer_map, dtype=np.float32)]
    if not words:
        raise ValueError("The question has no words, so there is nothing to draw.")
    if len({one.shape for one in every_map}) > 1:
        raise ValueError("The maps of the words and of the answer differ in size; they must be of one image.")
    return plot_word_maps(image, [*words, f"answer: {answer}".replace("$", r"\$")], np.stack(every_map))

"""Where the words of a question mattered in its image, and what the answer was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .heatmaps import plot_word_maps

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike
    from PIL.Image import Image


def plot_question(
    image: Image | np.ndarray, words: Sequence[str], maps: ArrayLike, answer: str, answer_map: ArrayLike
) -> Figure:
    """Draws an image once for every word of a question, under a map of the regions to which the word mattered.

    The last panel shows the regions that the answer was made of.

    Args:
        image: a `PIL.Image.Image` or an array `(height, width, 3)`.
        words: the T words of the question.
        maps: attention maps `(T, height, width)` of the image, as [`VisualQuestionAnsweringPipeline`] returns them.
        answer: to the question.
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

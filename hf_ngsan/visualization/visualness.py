"""Figures of visualness: the coloured words of a caption, and the most and least visual words of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .plots import INK, QUIET, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = "viridis"
MAX_LINE, WIDTH = 42, 50
"""Maximal characters of a line, and width of the panel in characters, with room for the frames of words."""


def plot_visualness(image: Any, words: Sequence[tuple[str, float]]) -> Figure:
    """Draws a caption under its image, each word in the colour of its visualness (figure 5 of Zhang et al. 2021).

    Args:
        image: a `PIL.Image.Image` or an array `(height, width, 3)`.
        words: words and their visualness, in [0, 1].

    Raises:
        MissingPlotsError: matplotlib is not installed.
    """
    lines = words_in_lines(words)
    figure = new_figure(5.0, 4.2 + 0.35 * len(lines))
    picture, text = figure.subplots(2, 1, height_ratios=[4.0, 0.2 + 0.35 * len(lines)])
    picture.imshow(np.asarray(image))
    for axes in (picture, text):
        axes.set_axis_off()
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable

    scale: Any = colormaps[COLORS]
    for number, line in enumerate(lines):
        place = 0.0
        for word, value in line:
            text.text(
                place / WIDTH,
                1 - (number + 0.5) / len(lines),
                word,
                color="white" if value < 0.6 else INK,
                family="monospace",
                fontsize=9,
                va="center",
                transform=text.transAxes,
                bbox={"facecolor": scale(value), "edgecolor": "none", "pad": 2},
            )
            place += len(word) + 1
    figure.colorbar(ScalarMappable(cmap=scale), ax=picture, label="visualness", shrink=0.8)
    return figure


def words_in_lines(words: Sequence[tuple[str, float]]) -> list[list[tuple[str, float]]]:
    """Breaks words into lines of 42 characters at most; a longer word has a line of its own."""
    lines: list[list[tuple[str, float]]] = [[]]
    length = 0
    for word, value in words:
        if lines[-1] and length + len(word) > MAX_LINE:
            lines.append([])
            length = 0
        lines[-1].append((word, value))
        length += len(word) + 1
    return lines


def plot_visual_words(table: Sequence[tuple[str, float, int, float]], number: int = 15) -> Figure:
    """Draws the most and the least visual words of a dataset, with their standard deviations.

    Args:
        table: word, mean visualness, occurrences and standard deviation, the most visual first.
        number: words of each kind.

    Raises:
        ValueError: the table is empty.
        MissingPlotsError: matplotlib is not installed.
    """
    if not table:
        raise ValueError("There are no words to draw; lower the number of occurrences that a word needs.")
    shown = list(table) if len(table) <= 2 * number else [*table[:number], *table[-number:]]
    figure = new_figure(6.0, 1.0 + 0.24 * len(shown))
    axes = figure.subplots()
    from matplotlib import colormaps

    for place, (_, mean, _, std) in enumerate(shown):
        axes.barh(-place, mean, xerr=std, color=colormaps[COLORS](mean), ecolor=QUIET)
    axes.set_yticks([-place for place in range(len(shown))], [f"{word} ({count})" for word, _, count, _ in shown])
    axes.set_xlim(0, 1)
    axes.set_ylim(0.5 - len(shown), 0.5)
    axes.set_xlabel("visualness: mean and deviation over (occurrences)")
    return figure

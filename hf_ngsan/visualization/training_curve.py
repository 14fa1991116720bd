"""The curve of a training run: its loss and its scores, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .plots import ACCENT, INK, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_training_curve(history: Sequence[Mapping[str, Any]], score: str | None = None) -> Figure:
    """Draws the loss of each epoch, and a score of evaluated epochs.

    Args:
        history: an entry for each epoch, as in a run's `history.jsonl`.
        score: name of the score; only the loss is drawn if None.

    Raises:
        MissingPlotsError: matplotlib is not installed.
    """
    figure = new_figure(6.0, 3.2)
    axes = figure.subplots()
    axes.set_xlabel("epoch")
    draw_curve(axes, history, "loss", "o-", INK)
    if any(score in entry for entry in history):
        draw_curve(axes.twinx(), history, str(score), "s--", ACCENT)
    return figure


def draw_curve(axes: Any, history: Sequence[Mapping[str, Any]], name: str, style: str, color: str) -> None:
    points = [(entry["epoch"], entry[name]) for entry in history if name in entry]
    axes.plot([epoch for epoch, _ in points], [value for _, value in points], style, color=color, markersize=3)
    axes.set_ylabel(name, color=color)

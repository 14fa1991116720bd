"""Shared parts of figures: colours, panels, curves, atomic writing of files, and images in HTML."""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..io.files import write_file_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase
    from PIL.Image import Image

INK, QUIET, ACCENT = "#1a1a1a", "#6b6b6b", "#c2410c"
DOTS_PER_INCH = 150
FIGURE_SIDE = 640  # longest side in pixels of images and maps in figures; a panel is about 300 pixels wide


class MissingPlotsError(ImportError):
    """matplotlib is not installed; the message has the command for installing it."""


def check_matplotlib() -> None:
    """Raises a MissingPlotsError unless matplotlib can be imported."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingPlotsError('Figures need matplotlib; install it with pip install "hf-ngsan[plots]".') from None


def new_figure(width: float, height: float) -> Figure:
    """Returns a figure of a size in inches, without pyplot, so that it does not have to be closed."""
    check_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")


def panel_rows(figure: FigureBase, number: int, columns: int) -> list[Axes]:
    """Returns panels of a figure (or of a part of it) in rows; the rest of the last row stays empty."""
    panels = figure.subplots(math.ceil(number / columns), columns, squeeze=False).ravel()
    for panel in panels[number:]:
        panel.set_axis_off()
    return panels[:number].tolist()


def save_figure(figure: Figure, path: str | os.PathLike) -> Path:
    """Writes a figure atomically, in the format of the file's suffix; missing parent folders are created."""
    path = Path(path)
    write_file_atomically(path, lambda file: figure.savefig(file, format=path.suffix.removeprefix(".") or None))
    return path


def plot_training_curve(history: Sequence[Mapping[str, Any]], score: str | None = None) -> Figure:
    """Draws the loss of each epoch and, if named, a score of the evaluated epochs.

    Args:
        history: an entry for each epoch, as in a run's `history.jsonl`.
        score: name of the score.
    """
    figure = new_figure(6.0, 3.2)
    axes = figure.subplots()
    axes.set_xlabel("epoch")
    curves: list[tuple[Any, str, str, str]] = [(axes, "loss", "o-", INK)]
    if any(score in entry for entry in history):
        curves.append((axes.twinx(), str(score), "s--", ACCENT))
    for panel, name, style, color in curves:
        points = [(entry["epoch"], entry[name]) for entry in history if name in entry]
        panel.plot([epoch for epoch, _ in points], [value for _, value in points], style, color=color, markersize=3)
        panel.set_ylabel(name, color=color)
    return figure


def data_url(image: Image, file_format: str, side: int | None = None, **options: Any) -> str:
    """Returns an image, at most `side` pixels wide and high, as a data URL; `options` are those of `save`."""
    shown, file = image.copy(), io.BytesIO()
    if side is not None:
        shown.thumbnail((side, side))
    shown.save(file, file_format, **options)
    return f"data:image/{file_format.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"

"""Figures of images: attention boxes and maps of words, visualness, changed boxes, contact sheets; files of figures."""

from __future__ import annotations

import base64
import io
import itertools
import math
import os
import textwrap
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..io.files import write_file_atomically
from ..io.messages import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase
    from numpy.typing import ArrayLike
    from PIL.Image import Image

INK, QUIET, ACCENT = "#1a1a1a", "#6b6b6b", "#c2410c"
DOTS_PER_INCH = 150
FIGURE_SIDE = 640  # longest side in pixels of images and maps in figures; a panel is about 300 pixels wide
COLUMNS = 4
PANEL_INCHES = 3.8
SHEET_COLUMNS = 3
MAX_LABEL, MAX_TITLE = 28, 80  # maximum characters of a label and of the title of a contact sheet
COLORS = "viridis"
MAX_LINE, WIDTH = 42, 50
"""Maximum characters of a line of coloured words, and width of the panel in characters, including their frames."""


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


def data_url(image: Image, file_format: str, side: int | None = None, **options: Any) -> str:
    """Returns an image, at most `side` pixels wide and high, as a data URL; `options` are those of `save`."""
    shown, file = image.copy(), io.BytesIO()
    if side is not None:
        shown.thumbnail((side, side))
    shown.save(file, file_format, **options)
    return f"data:image/{file_format.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def plot_word_maps(image: Image | np.ndarray, words: Sequence[str], maps: ArrayLike) -> Figure:
    """Draws an image for every word of its caption, overlaid with the attention map of the word.

    Args:
        image: a `PIL.Image.Image` or an array `(height, width, 3)`.
        words: the T words of the caption.
        maps: attention maps `(T, height, width)` of the image, from `pipeline("image-to-text")` with
            `return_attention=True`.

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
    if not len(words) or maps.shape != (len(words), height, width):
        raise ValueError(f"The maps have shape {maps.shape}; these words need {(len(words), height, width)}.")
    columns = min(COLUMNS, len(words))
    figure = new_figure(2.1 * columns, (2.1 * height / width + 0.35) * math.ceil(len(words) / columns))
    panels = panel_rows(figure, len(words), columns)
    if is_right_to_left(words):
        rows = [panels[first : first + columns][::-1] for first in range(0, len(panels), columns)]
        panels = [panel for row in rows for panel in row]
    for panel, word, weights in zip(panels, words, maps, strict=True):
        show_map(panel, image, weights)
        panel.set_title(word, fontsize=11, color=INK)
    return figure


def is_right_to_left(words: Sequence[str]) -> bool:
    """Returns whether the first letter of a text belongs to a right-to-left script."""
    directions = (unicodedata.bidirectional(character) for word in words for character in word)
    return next((direction != "L" for direction in directions if direction in ("L", "R", "AL")), False)


def plot_frame_attention(frames: Sequence[Image | np.ndarray], words: Sequence[str], weights: ArrayLike) -> Figure:
    """Draws the frames of a clip for every word of its caption, fainter where the word attends less.

    Args:
        frames: the N frames, images or arrays `(height, width, 3)`.
        words: the T words of the caption.
        weights: attention `(T, N)`, from `pipeline("image-to-text")` with `return_attention=True`.
    """
    weights = np.asarray(weights, dtype=np.float32)
    height, width = np.asarray(frames[0]).shape[:2]
    figure = new_figure(1.0 * len(frames) + 1.2, (height / width + 0.1) * len(words))
    panels = figure.subplots(len(words), len(frames), squeeze=False)
    for row, word, shares in zip(panels, words, weights, strict=True):
        row[0].text(-0.1, 0.5, word, transform=row[0].transAxes, ha="right", va="center", fontsize=11, color=INK)
        for panel, frame, share in zip(row, frames, shares / max(float(shares.max()), 1e-12), strict=True):
            panel.imshow(np.asarray(frame), alpha=0.15 + 0.85 * float(share))
            panel.set_axis_off()
    return figure


def plot_question(
    image: Image | np.ndarray, words: Sequence[str], maps: ArrayLike, answer: str, answer_map: ArrayLike
) -> Figure:
    """Draws an image for every word of a question, overlaid with the attention of regions to the word.

    The last panel shows the attention of the answer, `(height, width)`, which the pipeline returns as
    `"answer_attention"`. Other arguments are those of [`plot_word_maps`], for [`QuestionAnsweringPipeline`].
    """
    every_map = np.stack([*np.asarray(maps, dtype=np.float32), np.asarray(answer_map, dtype=np.float32)])
    return plot_word_maps(image, [*words, f"answer: {answer}".replace("$", r"\$")], every_map)


def plot_counterfactual(images: Sequence[Any], before: Any, after: Any, names: Sequence[str]) -> Figure:
    """Draws both images with the attention of the word with the largest change, and log-probabilities of all words.

    Args:
        images: two `PIL.Image.Image`s or arrays `(H, W, 3)`, before and after the change.
        before, after: objects with `caption`, `words`, `log_probabilities`, `attention` and `boxes`.
        names: names of the regions.
    """
    figure = new_figure(10.2, 3.9)
    first, second, bars = figure.subplots(1, 3)
    both = np.array([before.log_probabilities, after.log_probabilities])
    word = int(np.abs(both[1] - both[0]).argmax()) if both.shape[1] else None
    for panel, image, state in zip((first, second), images, (before, after), strict=True):
        show_image(panel, image, faded=True)
        pixels = to_pixels(state.boxes, image)
        weights = np.zeros(len(pixels)) if word is None else np.asarray(state.attention[word])
        draw_weights(panel, pixels, weights)
        draw_labels(panel, pixels, names)
        panel.set_title(state.caption, fontsize=8, color=INK, wrap=True, parse_math=False)
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


def plot_contact_sheet(images: Sequence[Image | None], labels: Sequence[str], title: str = "") -> Figure:
    """Draws images in rows of three with labels above; long labels are truncated, and `None` has only a label."""
    columns = min(SHEET_COLUMNS, len(images))
    figure = new_figure(2.6 * columns, 2.3 * math.ceil(len(images) / columns) + 0.4)
    for panel, image, label in zip(panel_rows(figure, len(images), columns), images, labels, strict=True):
        panel.set_axis_off()
        panel.set_title(in_one_line(label, MAX_LABEL), fontsize=9, color=QUIET, parse_math=False)
        if image is not None:
            panel.imshow(np.asarray(image.convert("RGB")))
    if title:
        figure.suptitle(in_one_line(title, MAX_TITLE), fontsize=11, color=INK, parse_math=False)
    return figure


def plot_visualness(image: Any, words: Sequence[tuple[str, float]]) -> Figure:
    """Draws a caption under its image, each word in the colour of its visualness (figure 5 of Zhang et al. 2021).

    Args:
        image: a `PIL.Image.Image` or an array `(height, width, 3)`.
        words: words and their visualness, in [0, 1].
    """
    caption = " ".join(word for word, _ in words)
    lines = textwrap.wrap(caption, MAX_LINE, break_long_words=False, break_on_hyphens=False) or [""]
    figure = new_figure(5.0, 4.2 + 0.35 * len(lines))
    picture, text = figure.subplots(2, 1, height_ratios=[4.0, 0.2 + 0.35 * len(lines)])
    picture.imshow(np.asarray(image))
    for axes in (picture, text):
        axes.set_axis_off()
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable

    scale, rest = colormaps[COLORS], iter(words)
    for number, line in enumerate(lines):
        place = 0.0
        for word, value in itertools.islice(rest, len(line.split())):
            frame = {"facecolor": scale(value), "edgecolor": "none", "pad": 2}
            style: dict[str, Any] = {"family": "monospace", "fontsize": 9, "va": "center", "bbox": frame}
            at = place / WIDTH, 1 - (number + 0.5) / len(lines)
            text.text(*at, word, color="white" if value < 0.6 else INK, transform=text.transAxes, **style)
            place += len(word) + 1
    figure.colorbar(ScalarMappable(cmap=scale), ax=picture, label="visualness", shrink=0.8)
    return figure


def plot_visual_words(table: Sequence[tuple[str, float, int, float]], number: int = 15) -> Figure:
    """Draws the most and the least visual words of a dataset, with their standard deviations.

    Args:
        table: word, mean visualness, occurrences and standard deviation, the most visual first.
        number: words of each kind.
    """
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


def in_one_line(text: str, longest: int) -> str:
    """Returns a text on one line of printable characters, truncated if it is too long."""
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return shortened(" ".join(printable.split()), longest)


def to_pixels(boxes: ArrayLike, image: Image | np.ndarray) -> np.ndarray:
    height, width = np.asarray(image).shape[:2]
    return np.asarray(boxes, dtype=np.float64) * [width, height, width, height]


def show_image(panel: Axes, image: Image | np.ndarray, faded: bool = False) -> None:
    """Draws an image without ticks; `faded` uses pale colours, for overlays."""
    pixels = np.asarray(image)
    panel.imshow(pixels, alpha=0.5 if faded else 1.0)
    panel.set_xlim(0, pixels.shape[1])
    panel.set_ylim(pixels.shape[0], 0)
    panel.set_xticks([])
    panel.set_yticks([])
    for spine in panel.spines.values():
        spine.set_color("#d4d4d4")


def show_map(panel: Axes, image: Image | np.ndarray, weights: np.ndarray) -> None:
    """Draws an image overlaid with a map of weights; larger weights are brighter and less transparent."""
    show_image(panel, image, faded=True)
    shares = weights / max(float(weights.max()), 1e-12)
    panel.imshow(shares, cmap="inferno", vmin=0, vmax=1, alpha=np.sqrt(shares) * 0.75)


def draw_weights(panel: Axes, boxes: np.ndarray, weights: np.ndarray) -> None:
    """Draws boxes given in pixels; boxes with larger weights are more opaque."""
    largest = max(float(weights.max()), 1e-12)
    for index in np.argsort(weights):
        share = float(weights[index]) / largest
        draw_box(panel, boxes[index], ACCENT if share > 0.5 else QUIET, fill=0.5 * share, width=0.6 + 1.6 * share)


def draw_box(panel: Axes, box: np.ndarray, colour: str, fill: float = 0.0, width: float = 1.0) -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    left, top, right, bottom = map(float, box)
    style: dict[str, Any] = {"facecolor": to_rgba(ACCENT, fill), "edgecolor": colour, "linewidth": width}
    panel.add_patch(Rectangle((left, top), right - left, bottom - top, **style))


def draw_labels(panel: Axes, boxes: np.ndarray, labels: Sequence[str]) -> None:
    """Writes a label above, below or next to each box, at the first of these positions without another label."""
    width, height = panel.get_xlim()[1], panel.get_ylim()[0]
    taken: list[tuple[float, ...]] = []
    for (left, top, right, bottom), label in zip(boxes, labels, strict=True):
        # approximate size of the text, for a picture of PANEL_INCHES
        half_x, half_y = width / PANEL_INCHES * np.array([0.034 * len(label) + 0.03, 0.075])
        x, y = (left + right) / 2, (top + bottom) / 2
        places = [(x, top - half_y), (x, bottom + half_y), (right + half_x, y), (left - half_x, y)]
        areas = [(x - half_x, y - half_y, x + half_x, y + half_y) for x, y in places]
        inside = [area for area in areas if min(area[:2]) >= 0 and area[2] <= width and area[3] <= height]
        free = [area for area in inside if not any(overlap(area, other) for other in taken)]
        area = (free or inside or areas)[0]
        taken.append(area)
        frame = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7}
        centre = (area[0] + area[2]) / 2, (area[1] + area[3]) / 2
        panel.text(*centre, label, ha="center", va="center", fontsize=8, color=INK, bbox=frame)


def overlap(area: Sequence[float], other: Sequence[float]) -> bool:
    return area[0] < other[2] and other[0] < area[2] and area[1] < other[3] and other[1] < area[3]

"""Figures of an image with its boxes, its caption and what the words of the caption attended to."""

import math
from collections.abc import Sequence

import numpy as np

from .attention import WordAttention
from .plots import ACCENT, INK, QUIET, new_figure

CHARACTERS_PER_LINE = 48
COLUMNS = 4


def plot_caption(image, boxes, attention: WordAttention, word: str | int, names: Sequence[str] | None = None):
    """An image with its boxes, its caption, and the attention of one word.

    On the left the boxes with their names, on the right how the attention of the word, highlighted in the caption, is
    shared out among them.

    Args:
        image: a `PIL.Image.Image` or an array `(H, W, 3)`.
        boxes: `(N, 4)`, `x1, y1, x2, y2` divided by the image's width and height.
        attention: of the caption, over the N boxes.
        word: the word, or its position.
        names: of the boxes; their numbers otherwise.

    Returns:
        `matplotlib.figure.Figure`.

    Raises:
        ValueError: the caption has no such word, or boxes, names and weights are not equally many.
        MissingPlotsError: matplotlib is not installed.
    """
    position = attention.position(word)
    weights = attention.weights[position]
    boxes = check_boxes(boxes, attention, names)
    names = [str(index) for index in range(len(boxes))] if names is None else list(names)
    figure = new_figure(8.4, 4.7)
    caption_panel, picture, attended = figure.subplot_mosaic(
        [["caption", "caption"], ["picture", "attended"]], height_ratios=[0.14, 1]
    ).values()
    write_caption(caption_panel, attention.words, position)
    show_image(picture, image)
    for box, name in zip(to_pixels(boxes, image), names, strict=True):
        draw_box(picture, box, QUIET, label=name)
    show_image(attended, image, faded=True)
    draw_weights(attended, to_pixels(boxes, image), weights, show_values=True)
    picture.set_title("regions", fontsize=10, color=QUIET)
    attended.set_title(f"attention of “{attention.words[position]}”", fontsize=10, color=QUIET)
    return figure


def plot_words(image, boxes, attention: WordAttention):
    """An image once for every word of its caption, with the attention of the word.

    Args, returns and raises: as `plot_caption`.
    """
    boxes = to_pixels(check_boxes(boxes, attention), image)
    rows = math.ceil(len(attention.words) / COLUMNS)
    figure = new_figure(8.4, 2.35 * rows)
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for panel in panels[len(attention.words) :]:
        panel.set_axis_off()
    for panel, word, weights in zip(panels, attention.words, attention.weights, strict=False):
        show_image(panel, image, faded=True)
        draw_weights(panel, boxes, weights)
        panel.set_title(word, fontsize=11, color=INK)
    return figure


def check_boxes(boxes, attention: WordAttention, names: Sequence[str] | None = None) -> np.ndarray:
    boxes = np.asarray(boxes, dtype=np.float64)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"boxes has shape {boxes.shape}; it must be (regions, 4) with x1, y1, x2, y2.")
    if not attention.words:
        raise ValueError("The caption has no words, so there is no attention to show.")
    for what, number in (
        ("attention weights", attention.weights.shape[1]),
        ("names", len(boxes if names is None else names)),
    ):
        if number != len(boxes):
            raise ValueError(
                f"There are {len(boxes)} boxes, but {number} {what}; they must be those of the same image."
            )
    return boxes


def to_pixels(boxes: np.ndarray, image) -> np.ndarray:
    height, width = np.asarray(image).shape[:2]
    return boxes * [width, height, width, height]


def show_image(panel, image, faded: bool = False):
    pixels = np.asarray(image)
    panel.imshow(pixels, alpha=0.5 if faded else 1.0)
    panel.set_xlim(0, pixels.shape[1])
    panel.set_ylim(pixels.shape[0], 0)
    panel.set_xticks([])
    panel.set_yticks([])
    for spine in panel.spines.values():
        spine.set_color("#d4d4d4")


def draw_weights(panel, boxes: np.ndarray, weights: np.ndarray, show_values: bool = False):
    """Boxes filled the more, the more weight they have; `boxes` in pixels."""
    largest = max(float(weights.max()), 1e-12)
    for index in np.argsort(weights):
        share = float(weights[index]) / largest
        label = f"{weights[index]:.0%}" if show_values else None
        draw_box(
            panel, boxes[index], ACCENT if share > 0.5 else QUIET, label, fill=0.5 * share, width=0.6 + 1.6 * share
        )


def draw_box(panel, box, colour: str, label: str | None = None, fill: float = 0.0, width: float = 1.0):
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    left, top, right, bottom = box
    face = to_rgba(ACCENT, fill)
    panel.add_patch(
        Rectangle((left, top), right - left, bottom - top, facecolor=face, edgecolor=colour, linewidth=width)
    )
    if label is not None:
        near_top = top < 0.06 * panel.get_ylim()[0]
        panel.annotate(
            label,
            ((left + right) / 2, bottom if near_top else top),
            xytext=(0, -3 if near_top else 3),
            textcoords="offset points",
            ha="center",
            va="top" if near_top else "bottom",
            fontsize=8,
            color=INK,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )


def write_caption(panel, words: Sequence[str], highlighted: int):
    """The caption in the middle of an empty panel, one word of it in colour."""
    from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea, VPacker

    panel.set_axis_off()
    lines = []
    for index, word in enumerate(words):
        chosen = index == highlighted
        style = {"fontsize": 13, "color": ACCENT if chosen else INK, "fontweight": "bold" if chosen else "normal"}
        if not lines or sum(len(text) + 1 for text, _ in lines[-1]) + len(word) > CHARACTERS_PER_LINE:
            lines.append([])
        lines[-1].append((word, style))
    rows = [
        HPacker(children=[TextArea(word, textprops=style) for word, style in line], pad=0, sep=5, align="baseline")
        for line in lines
    ]
    block = VPacker(children=rows, pad=0, sep=3, align="center")
    panel.add_artist(AnnotationBbox(block, (0.5, 0.5), xycoords="axes fraction", frameon=False))

"""Figures of an image with its boxes, its caption and what the words of the caption attended to."""

import math
from collections.abc import Sequence

import numpy as np

from .attention import WordAttention
from .plots import ACCENT, INK, QUIET, new_figure

CHARACTERS_PER_LINE = 48
COLUMNS = 4
PANEL_INCHES = 3.8


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
    for box in to_pixels(boxes, image):
        draw_box(picture, box, QUIET)
    draw_labels(picture, to_pixels(boxes, image), names)
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
    order = np.argsort(weights)
    for index in order:
        share = float(weights[index]) / largest
        draw_box(panel, boxes[index], ACCENT if share > 0.5 else QUIET, fill=0.5 * share, width=0.6 + 1.6 * share)
    if show_values:
        draw_labels(panel, boxes[order], [f"{weight:.0%}" for weight in weights[order]])


def draw_box(panel, box: np.ndarray, colour: str, fill: float = 0.0, width: float = 1.0):
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    size = box[2:] - box[:2]
    style = {"facecolor": to_rgba(ACCENT, fill), "edgecolor": colour, "linewidth": width}
    panel.add_patch(Rectangle(tuple(box[:2]), *size, **style))


def draw_labels(panel, boxes: np.ndarray, labels: Sequence[str]):
    """A label at each box: above it, below it or beside it, wherever it first meets no other label."""
    width, height = panel.get_xlim()[1], panel.get_ylim()[0]
    taken = []
    for (left, top, right, bottom), label in zip(boxes, labels, strict=True):
        # rough size of the text, as the picture is PANEL_INCHES wide
        half_x, half_y = width / PANEL_INCHES * np.array([0.034 * len(label) + 0.03, 0.075])
        x, y = (left + right) / 2, (top + bottom) / 2
        places = [(x, top - half_y), (x, bottom + half_y), (right + half_x, y), (left - half_x, y)]
        areas = [(x - half_x, y - half_y, x + half_x, y + half_y) for x, y in places]
        inside = [area for area in areas if min(area[:2]) >= 0 and area[2] <= width and area[3] <= height]
        free = [area for area in inside if not any(overlap(area, other) for other in taken)]
        area = (free or inside or areas)[0]
        taken.append(area)
        panel.text(
            (area[0] + area[2]) / 2,
            (area[1] + area[3]) / 2,
            label,
            ha="center",
            va="center",
            fontsize=8,
            color=INK,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
        )


def overlap(area: Sequence[float], other: Sequence[float]) -> bool:
    return area[0] < other[2] and other[0] < area[2] and area[1] < other[3] and other[1] < area[3]


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

"""Contact sheets: small images side by side, each with a label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .plots import INK, QUIET, new_figure, panel_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

COLUMNS = 3
MAX_LABEL, MAX_TITLE = 28, 80
"""Maximal characters of a label and of the title."""


def plot_contact_sheet(images: Sequence[Image | None], labels: Sequence[str], title: str = "") -> Figure:
    """Draws images in rows of three, with a label above each.

    Args:
        images: `PIL.Image.Image`s; `None` draws only the label.
        labels: labels of the images; long ones are cut.
        title: title of the sheet.

    Raises:
        ValueError: there are no images, or not one label for each.
        MissingPlotsError: matplotlib is not installed.

    Example:

    ```python
    >>> from PIL import Image
    >>> from hf_ngsan.visualization import plot_contact_sheet
    >>> figure = plot_contact_sheet([Image.new("RGB", (40, 30))], ["0.913 dog.jpg"], "a dog")
    >>> [panel.get_title() for panel in figure.axes]
    ['0.913 dog.jpg']

    ```
    """
    if not images or len(images) != len(labels):
        raise ValueError(f"There are {len(images)} images and {len(labels)} labels; give one label for each image.")
    columns = min(COLUMNS, len(images))
    figure = new_figure(2.6 * columns, 2.3 * math.ceil(len(images) / columns) + 0.4)
    for panel, image, label in zip(panel_rows(figure, len(images), columns), images, labels, strict=True):
        panel.set_axis_off()
        panel.set_title(shortened(label, MAX_LABEL), fontsize=9, color=QUIET, parse_math=False)
        if image is not None:
            panel.imshow(np.asarray(image.convert("RGB")))
    if title:
        figure.suptitle(shortened(title, MAX_TITLE), fontsize=11, color=INK, parse_math=False)
    return figure


def shortened(text: str, longest: int) -> str:
    """Returns a text in one line of printable characters, cut if it is too long."""
    line = " ".join("".join(character if character.isprintable() else "?" for character in text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"

"""Figures of the attention of words of captions and questions, one per file."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..visualization import check_matplotlib, save_figure
from ..visualization.plots import FIGURE_SIDE

logger = logging.getLogger(__name__)


def prepare_figures(folder: str | Path) -> dict[str, Any]:
    """Makes a folder for figures; returns the arguments with which a pipeline returns their contents.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        FileExistsError: the folder is a file.
    """
    check_matplotlib()
    Path(folder).mkdir(parents=True, exist_ok=True)
    return {"return_attention": True, "attention_side": FIGURE_SIDE}


def save_attention(answer: dict, name: str, path: Path, plot: Callable[..., Any], arguments: tuple[str, ...]) -> bool:
    """Saves the figure that `plot` makes of parts of an answer; returns False, and logs why, if it has none."""
    if not answer["words"]:
        logger.warning("There is no figure of %s, which has no words.", name)
    elif "image" not in answer:
        logger.warning("There is no figure of %s, which has no image, or features without boxes.", name)
    else:
        figure = plot(*(answer[part] for part in arguments))
        save_figure(figure, path)
        figure.clear()  # its parts refer to each other, so they would stay in memory for long
        return True
    return False

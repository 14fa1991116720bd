"""Captions of image files, with figures of where each word looked."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from .models.pipeline_image_to_text import ImageToTextPipeline
from .visualization import check_matplotlib, plot_word_maps, save_figure

logger = logging.getLogger(__name__)

FIGURE_SIDE = 640
"""Longest side in pixels of the images and maps that figures are drawn of: each panel is about 300 pixels wide."""


def caption_files(
    model,
    processor,
    paths: Sequence[str],
    *,
    attention_folder: str | Path | None = None,
    on_error: str = "raise",
    batch_size: int = 64,
    **generate_arguments,
) -> Iterator[tuple[str, str | None, str | None]]:
    """Caption image files one after the other.

    Args:
        model: a captioner with a vision part, in evaluation mode.
        processor: the model's.
        paths: image files, or addresses of images.
        attention_folder: folder for a figure of each file, `NAME.png`, with a heat map for each word; a file whose
            caption has no words gets none, and a line of the log says so.
        on_error: `"raise"` at a file that cannot be read, or `"skip"` it.
        batch_size: images captioned at once.
        generate_arguments: `text`, what every caption shall begin with, and arguments of `generate()`.

    Yields:
        Path, caption, and `None`; for a file that was skipped path, `None`, and the reason.

    Raises:
        ValueError: the model sees no images, or a file cannot be read.
        MissingPlotsError: figures are asked for and matplotlib is not installed.
        FileExistsError: the folder for figures is a file.
    """
    if model.config.vision_config is None:
        raise ValueError("This captioner has no vision part and reads no image files; give it a data set with --data.")
    if attention_folder is not None:
        check_matplotlib()
        Path(attention_folder).mkdir(parents=True, exist_ok=True)
    pipeline = ImageToTextPipeline(model=model, processor=processor, batch_size=batch_size)
    if attention_folder is not None:
        generate_arguments |= {"return_attention": True, "attention_side": FIGURE_SIDE}
    answers = pipeline(iter(paths), on_error=on_error, **generate_arguments)
    figures = figure_paths(paths, Path(attention_folder or "."))
    for path, figure_path, [answer, *_] in zip(paths, figures, answers, strict=True):
        if answer.get("words"):
            figure = plot_word_maps(answer["image"], answer["words"], answer["attention"])
            save_figure(figure, figure_path)
            figure.clear()  # else its parts, which refer to each other, would stay in memory for long
        elif "words" in answer:
            logger.warning("The caption of %s has no words; there is no figure of it.", path)
        yield path, answer["generated_text"], answer.get("error")


def figure_paths(paths: Sequence[str], folder: Path) -> list[Path]:
    """A file for the figure of each image, named after it; files of one name get a number."""
    taken, figures = set(), []
    for path in paths:
        name, number = Path(path).stem, 1
        while name in taken:
            number += 1
            name = f"{Path(path).stem}-{number}"
        taken.add(name)
        figures.append(folder / f"{name}.png")
    return figures

"""The command `hf-ngsan visualness`: prints how much each word of a captioner depends on the image."""

import argparse
from pathlib import Path

from . import arguments
from .arguments import add_shared, positive_int, user_path

SUMMARY = "Print the visualness of each word that a captioner generates (RSTNet)."
EPILOG = """examples:
  hf-ngsan visualness --model runs/rstnet --data features:features --min-count 5
  hf-ngsan visualness --model runs/rstnet --data images:photos --limit 20 --figures figures

The table has one line per word, the most visual word first. A line has the word, its visualness from 0 to 1 (mean over
occurrences), the number of occurrences and the standard deviation. The figures are words.png, and ID.png for the
caption of each image."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model", *arguments.DATA, *arguments.GENERATION)
    add_shared(parser, "--batch-size", default=64)
    add = parser.add_argument
    add("--min-count", type=positive_int, default=1, metavar="N", help="leave out words with fewer occurrences")
    add("--figures", type=user_path, metavar="DIR", help="write figures of words and captions into this folder")


def run(options: argparse.Namespace) -> None:
    arguments.check_figures("--figures", options.figures, [options.data])
    from ..tasks.caption_rows import load_rows, rows_for
    from ..tasks.captioning_analysis import captions_with_visualness, visualness_of_words
    from ..tasks.new_models import checked_generation
    from ..visualization import plot_visual_words, plot_visualness, save_figure

    model, processor = arguments.load_on_device(options.model, "captioning")
    loaded = load_rows(options.data, options.split, with_captions=False, limit=options.limit)
    rows = rows_for(model, processor, loaded, options.data)
    settings = checked_generation(arguments.generation_arguments(options), model.generation_config)
    captions = captions_with_visualness(model, processor, rows, batch_size=options.batch_size, **settings)
    table = [entry for entry in visualness_of_words(captions) if entry.occurrences >= options.min_count]
    print("word\tvisualness\tcount\tstd")
    for word, mean, count, std in table:
        print(f"{word}\t{mean:.4f}\t{count}\t{std:.4f}")
    if options.figures is None:
        return
    folder = Path(options.figures)
    folder.mkdir(parents=True, exist_ok=True)
    if table:
        save_figure(plot_visual_words(table), folder / "words.png")
    if "image" in loaded.column_names:
        for row, words in zip(loaded.select_columns(["image_id", "image"]), captions, strict=True):
            figure = plot_visualness(row["image"], words)
            save_figure(figure, folder / f"{row['image_id']}.png")
            figure.clear()  # its parts reference each other, so they would stay in memory for long

"""The command `hf-ngsan caption`: captions of image files, or of the images of a dataset."""

import argparse
import sys

from .arguments import (
    DATASETS,
    add_data_arguments,
    add_generation_arguments,
    add_model_argument,
    generation_options,
)

SUMMARY = "Print a caption for each image file, or for each image of a dataset: its name or id, a tab, the caption."
EPILOG = f"""examples:
  hf-ngsan caption --model runs/spatial photo.jpg another.png --save-attention maps
  hf-ngsan caption --model runs/scenes --data scenes --split test --limit 5

{DATASETS}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", nargs="*", metavar="IMAGE", help="image files, for a model with a vision encoder")
    add_model_argument(parser)
    add_data_arguments(parser, required=False)
    add_generation_arguments(parser)
    parser.add_argument("--text", metavar="WORDS", help="what every caption begins with (IMAGE only)")
    parser.add_argument(
        "--save-attention", metavar="DIR", help="write there, for each IMAGE, where each word of its caption looked"
    )
    parser.add_argument("--skip-errors", action="store_true", help="continue after an IMAGE that cannot be read")


def run(options: argparse.Namespace) -> None:
    check_options(options)
    if options.images:
        caption_images(options)
    else:
        caption_rows(options)


def check_options(options: argparse.Namespace) -> None:
    if bool(options.images) == (options.data is not None):
        raise ValueError("Give image files to caption, or a dataset with --data, and not both.")
    of_images = ("text", "save_attention", "skip_errors")
    if not options.images and (given := [name for name in of_images if getattr(options, name)]):
        raise ValueError(f"--{given[0].replace('_', '-')} is for image files, not for --data.")


def caption_images(options: argparse.Namespace) -> None:
    from ..captioning_files import caption_files
    from ..launching import make_accelerator
    from ..loading import load_captioner

    model, processor = load_captioner(options.model)
    results = caption_files(
        model.to(make_accelerator().device),
        processor,
        options.images[: options.limit],
        attention_folder=options.save_attention,
        on_error="skip" if options.skip_errors else "raise",
        batch_size=options.batch_size,
        text=options.text,
        **generation_options(options),
    )
    for path, caption, error in results:
        print(f"{path}\t{caption or ''}", flush=True)
        if error is not None:
            print(f"hf-ngsan: skipped: {error}", file=sys.stderr)


def caption_rows(options: argparse.Namespace) -> None:
    from ..launching import make_accelerator
    from ..loading import load_captioner
    from ..tasks import caption_batch
    from ..tasks.caption_rows import load_rows, rows_for

    model, processor = load_captioner(options.model)
    rows = load_rows(options.data, options.split, with_captions=False, limit=options.limit)
    rows = rows_for(model, processor, rows, options.data)
    model = model.to(make_accelerator().device)
    for start in range(0, len(rows), options.batch_size):
        batch = [rows[index] for index in range(start, min(start + options.batch_size, len(rows)))]
        captions = caption_batch(model, processor, batch, **generation_options(options))
        for row, caption in zip(batch, captions, strict=True):
            print(f"{row['image_id']}\t{caption}", flush=True)

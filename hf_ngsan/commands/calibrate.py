"""The command `hf-ngsan calibrate`: the confidence of a captioner in its captions, and the threshold of a search."""

import argparse
import os
from typing import Any

from ..io.packaged import DUAL_ENCODER, find_model_folder, own_model_folder
from .arguments import add_shared, check_outputs, load_on_device, pick, user_path

SUMMARY = """Calibrate the confidence of a captioner, or the similarity threshold of a search.

For a captioner, the command fits the probability that a caption is right, on images that were not used in training. A
caption counts as right if its CIDEr-D is at least the median. For a dual encoder, the command finds the similarity
below which an image does not match a text."""
EPILOG = """examples:
  hf-ngsan calibrate --model runs/photographs/best --data images:flickr8k --split validation
  hf-ngsan calibrate --model runs/photographs/best --data images:flickr8k --data images:everyday
  hf-ngsan caption --model runs/photographs/best photo.jpg --scores
  hf-ngsan calibrate --model runs/retrieval/best --data images:flickr8k

The command writes confidence.json into the folder of a captioner, or search.json into that of a dual encoder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model")
    add_shared(parser, "--data", action="append", help="images with captions, such as images:DIR; can be repeated")
    add_shared(parser, "--limit", "--num-beams")
    encoder = "dual encoder for the confidence of a captioner, with the same image preprocessing"
    parser.add_argument("--dual-encoder", default=DUAL_ENCODER, type=user_path, metavar="DIR", help=encoder)
    add_shared(parser, "--split", default="validation")
    parser.add_argument("--train-split", default="train", metavar="NAME", help="split used in training")
    add_shared(parser, "--batch-size", default=64)


def run(options: argparse.Namespace) -> None:
    from ..loading.calibration import CONFIDENCE, SEARCH, write_calibration
    from ..loading.models import load_config, task_of

    folder = own_model_folder(options.model)
    if not os.path.isdir(folder):
        raise ValueError(f"{folder} is a model on the Hub; save a copy with save_pretrained and calibrate that.")
    is_search = task_of(load_config(folder)) == "retrieval"
    file = os.path.join(folder, SEARCH if is_search else CONFIDENCE)
    check_outputs({"--model": file})
    result: Any = calibrate_dual_encoder(options) if is_search else calibrate_captioner(options)
    write_calibration(folder, result)
    if is_search:
        print(
            f"{file}: images match a text from a similarity of {result.min_similarity:.3f} on. {result.missed:.0%} of "
            f"{result.num_images} images do not match their captions, and in {result.mistaken:.0%} of collections "
            "without the image of a caption, another image matches."
        )
        return
    doubts = f"{result.doubted:.0%} of wrong captions get a warning, below a confidence of {result.doubt_below:.2f}"
    print(f"{file}: AUROC {result.auroc:.3f}, calibration error {result.calibration_error:.3f}; {doubts}.")
    right = f"a caption is right if its CIDEr-D is at least {result.median_cider_d:.2f}"
    print(f"These are values of a cross-validation over {result.num_images} captions; {right}.")


def calibrate_captioner(options: argparse.Namespace) -> Any:
    from ..tasks.caption_rows import load_rows, rows_for
    from ..tasks.captioning_analysis import calibrate

    find_model_folder(options.dual_encoder)
    captioner, processor = load_on_device(options.model, "captioning")
    rows, training_rows = (
        [rows_for(captioner, processor, load_rows(data, split, limit=options.limit), data) for data in options.data]
        for split in (options.split, options.train_split)
    )
    arguments = pick(options, "data", "split", "num_beams", "batch_size")
    return calibrate(captioner, processor, options.dual_encoder, rows, training_rows, **arguments)


def calibrate_dual_encoder(options: argparse.Namespace) -> Any:
    from ..tasks.caption_rows import load_rows
    from ..tasks.retrieval_search import calibrate_search

    rows = [load_rows(data, options.split, limit=options.limit) for data in options.data]
    model, processor = load_on_device(options.model, "retrieval")
    return calibrate_search(model, processor, rows, **pick(options, "data", "split", "batch_size"))

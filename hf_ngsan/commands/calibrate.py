"""The command `hf-ngsan calibrate`: the confidence of a captioner in its captions."""

import argparse
import os

from ..io.packaged import DUAL_ENCODER, find_model_folder, own_model_folder
from .arguments import add_shared, check_outputs, load_on_device, pick, user_path

SUMMARY = """Calibrate how sure a captioner is of its captions.

The probability that a caption is right is fitted to captions of images that the captioner was not trained with. Right
are those that agree with their references at least as well as the median caption, by CIDEr-D."""
EPILOG = """examples:
  hf-ngsan calibrate --model runs/photographs/best --data images:flickr8k --split validation
  hf-ngsan caption --model runs/photographs/best photo.jpg --scores

It writes confidence.json into the captioner's folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model", "--data", "--limit", "--num-beams")
    encoder = "dual encoder that reads images as the captioner does (%(default)s)"
    parser.add_argument("--dual-encoder", default=DUAL_ENCODER, type=user_path, metavar="DIR", help=encoder)
    add_shared(parser, "--split", default="validation")
    parser.add_argument("--train-split", default="train", metavar="NAME", help="split of the training (%(default)s)")
    add_shared(parser, "--batch-size", default=64)


def run(options: argparse.Namespace) -> None:
    from ..loading.confidence import CONFIDENCE
    from ..tasks.caption_rows import load_rows, rows_for
    from ..tasks.captioning_analysis import calibrate, write_calibration

    folder = own_model_folder(options.model)
    check_outputs({"--model": os.path.join(folder, CONFIDENCE)})
    find_model_folder(options.dual_encoder)
    captioner, processor = load_on_device(options.model, "captioning")
    rows, training_rows = (
        rows_for(captioner, processor, load_rows(options.data, split, limit=options.limit), options.data)
        for split in (options.split, options.train_split)
    )
    found = calibrate(
        captioner,
        processor,
        options.dual_encoder,
        rows,
        training_rows,
        **pick(options, "data", "split", "num_beams", "batch_size"),
    )
    write_calibration(folder, found)
    print(
        f"{folder}/{CONFIDENCE}: AUROC {found.auroc:.3f}, calibration error {found.calibration_error:.3f}, both by "
        f"cross-validation over {found.num_images} captions; a caption counts as right from a CIDEr-D of "
        f"{found.median_cider_d:.2f}."
    )

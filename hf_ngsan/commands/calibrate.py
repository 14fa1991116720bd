"""The command `hf-ngsan calibrate`: the confidence of a captioner in its captions."""

import argparse
import os

from ..io.packaged import DUAL_ENCODER
from .arguments import (
    DATASETS,
    MAX_CAPTIONS,
    add_batch_size_argument,
    add_data_arguments,
    add_model_argument,
    at_most,
    check_data,
    check_output_file,
    user_path,
)

SUMMARY = """Calibrate how sure a captioner is of its captions.

The probability that a caption is right is fitted to captions of images that the captioner was not trained with. Right
are those that agree with their references at least as well as the median caption, by CIDEr-D."""
EPILOG = f"""examples:
  hf-ngsan calibrate --model runs/photographs/best --data images:flickr8k --split validation
  hf-ngsan caption --model runs/photographs/best photo.jpg --scores

It writes confidence.json into the captioner's folder.

{DATASETS}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument(
        "--dual-encoder",
        default=DUAL_ENCODER,
        type=user_path,
        metavar="DIR",
        help="dual encoder that reads images as the captioner does (%(default)s)",
    )
    add_data_arguments(parser, default_split="validation")
    parser.add_argument("--train-split", default="train", metavar="NAME", help="split of the training (%(default)s)")
    parser.add_argument(
        "--num-beams", type=at_most(MAX_CAPTIONS), metavar="N", help="beams of the captions (the captioner's own)"
    )
    add_batch_size_argument(parser, 64)


def run(options: argparse.Namespace) -> None:
    check_data(options.data)
    from ..io.processes import make_accelerator
    from ..loading.confidence import CONFIDENCE
    from ..loading.models import find_model_folder, load_captioner
    from ..tasks.caption_rows import load_rows, rows_for
    from ..tasks.captioning_analysis import calibrate, write_calibration

    folder = find_model_folder(options.model)
    if not os.path.isdir(folder):
        raise ValueError(f"{folder} is a model of the Hub; calibrate a copy, a folder that save_pretrained wrote.")
    check_output_file(os.path.join(folder, CONFIDENCE), "--model")
    find_model_folder(options.dual_encoder)
    captioner, processor = load_captioner(options.model)
    captioner.to(make_accelerator().device)
    rows, training_rows = (
        load_rows(options.data, split, limit=options.limit) for split in (options.split, options.train_split)
    )
    found = calibrate(
        captioner,
        processor,
        options.dual_encoder,
        rows_for(captioner, processor, rows, options.data),
        rows_for(captioner, processor, training_rows, options.data),
        data=options.data,
        split=options.split,
        num_beams=options.num_beams,
        batch_size=options.batch_size,
    )
    write_calibration(folder, found)
    print(
        f"{folder}/{CONFIDENCE}: AUROC {found.auroc:.3f}, calibration error {found.calibration_error:.3f}, both by "
        f"cross-validation over {found.num_images} captions; a caption counts as right from a CIDEr-D of "
        f"{found.median_cider_d:.2f}."
    )

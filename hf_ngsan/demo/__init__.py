"""The command `hf-ngsan demo`: a page with outputs of the packaged models, or new models trained on scenes."""

import argparse

from ..commands.arguments import at_most, user_path
from ..io import MAX_INTEGER

SUMMARY = """Show the effect of geometry on captions, on one page.

The packaged captioners of synthetic scenes describe one scene, before and after two of its objects change places, and
state relations on 100 scenes. Photographs are captioned, with the confidence of each caption, and searched by text. All
of this takes less than a minute. With --train, similar models are trained and compared: SAN, NG-SAN with unsigned and
with signed geometry, a captioner of pixels, and a dual encoder that searches scenes by text."""
EPILOG = """examples:
  hf-ngsan demo
  hf-ngsan demo --seed 1                            another scene
  hf-ngsan demo --train                             takes some minutes on two CPU cores
  hf-ngsan demo --train --output runs/another --seed 1"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add, seed = parser.add_argument, "seed of the scenes and, with --train, of the weights (%(default)s)"
    add("--output", type=user_path, default="runs/demo", metavar="DIR", help="folder of the results (%(default)s)")
    add("--seed", type=at_most(MAX_INTEGER, 0), default=0, metavar="N", help=seed)
    add("--train", action="store_true", help="train models on synthetic scenes and compare them")


def run(options: argparse.Namespace) -> int:
    from . import page, training

    return (training if options.train else page).main(output=options.output, seed=options.seed)

"""The command `hf-ngsan demo`: a page of what the packaged models say, or models trained anew on synthetic scenes."""

import argparse

from ..commands.arguments import at_most, user_path
from ..io import MAX_INTEGER

SUMMARY = """Show on one page what geometry changes in captions.

The packaged captioners of synthetic scenes describe one, say what is true after two of its objects have changed places,
and state relations on 100 scenes; photographs are captioned, with how sure the captioner is, and found by words. All of
it takes less than a minute. With --train, models like these are trained and compared: SAN, NG-SAN with unsigned and
with signed geometry, a captioner of pixels, and a dual encoder that finds scenes by words."""
EPILOG = """examples:
  hf-ngsan demo
  hf-ngsan demo --seed 1                            another scene
  hf-ngsan demo --train                             some minutes on two CPU cores
  hf-ngsan demo --train --output runs/another --seed 1"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add, seed = parser.add_argument, "seed of the scenes and, with --train, of the weights (%(default)s)"
    add("--output", type=user_path, default="runs/demo", metavar="DIR", help="folder of the results (%(default)s)")
    add("--seed", type=at_most(MAX_INTEGER, 0), default=0, metavar="N", help=seed)
    add("--train", action="store_true", help="train models of synthetic scenes and compare them")


def run(options: argparse.Namespace) -> int:
    from . import page, training

    return (training if options.train else page).main(output=options.output, seed=options.seed)

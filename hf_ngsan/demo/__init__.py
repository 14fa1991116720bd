"""The command `hf-ngsan demo`: a page of what the packaged models say of synthetic scenes and photographs."""

import argparse

from ..commands.arguments import at_most, user_path
from ..io import MAX_INTEGER

SUMMARY = """Show on one page what geometry changes in captions.

The packaged captioners of synthetic scenes describe one, say what is true after two of its objects have changed places,
and state relations on 100 scenes; photographs are captioned, with how sure the captioner is, and found by words. All of
it takes less than a minute. hf-ngsan train --config ngsan/scenes trains such a captioner."""
EPILOG = """examples:
  hf-ngsan demo
  hf-ngsan demo --seed 1    # other scenes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--output", type=user_path, default="runs/demo", metavar="DIR", help="folder of the results (%(default)s)")
    add("--seed", type=at_most(MAX_INTEGER, 0), default=0, metavar="N", help="seed of the scenes (%(default)s)")


def run(options: argparse.Namespace) -> int:
    from .page import main

    return main(output=options.output, seed=options.seed)

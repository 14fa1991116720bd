"""The command `hf-ngsan demo`: a page with outputs of the packaged models for synthetic scenes and photographs."""

import argparse

from ..commands.arguments import at_most, user_path
from ..io import MAX_INTEGER

SUMMARY = """Show the effect of geometry on captions, on one page.

The packaged captioners of synthetic scenes describe one scene, before and after two of its objects change places, and
state relations on 100 scenes. Photographs are captioned, with the confidence of each caption, and searched by text. All
of this takes less than a minute. hf-ngsan train --config ngsan/scenes trains such a captioner."""
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

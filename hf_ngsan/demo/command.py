"""The command `hf-ngsan demo`: small models, trained and compared on synthetic scenes."""

import argparse

from ..ground.argument_types import at_most, user_path, whole_number
from ..ground.bounds import MAX_INTEGER

SUMMARY = """Caption a photograph, train small models and compare them.

The models are trained on synthetic scenes in some minutes on two CPU cores: SAN, NG-SAN with unsigned and with signed
geometry, a captioner of pixels, and a dual encoder that finds scenes by words."""
EPILOG = """examples:
  hf-ngsan demo
  hf-ngsan demo --output runs/another --seed 1"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", type=user_path, default="runs/demo", metavar="DIR", help="folder of the results (%(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=at_most(MAX_INTEGER, whole_number),
        default=0,
        metavar="N",
        help="seed of scenes and weights (%(default)s)",
    )
    parser.add_argument("--retrain", action="store_true", help="train again the models that are already trained")


def run(options: argparse.Namespace) -> int:
    from .journey import main

    return main(output=options.output, seed=options.seed, retrain=options.retrain)

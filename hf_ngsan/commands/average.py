"""The command `hf-ngsan average`: averages the weights of the last checkpoints of a training run."""

import argparse
from pathlib import Path

from .arguments import add_shared, positive_int

SUMMARY = "Average the last checkpoints of a training run into a model."
EPILOG = """examples:
  hf-ngsan train --config nsa_transformer/multi30k data.spec=parallel:DIR,source=en,target=de
  hf-ngsan average --model runs/multi30k --last 5 --output runs/multi30k-average

A training run keeps its last training.keep_checkpoints checkpoints."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model", help="folder of a training run")
    parser.add_argument("--last", type=positive_int, default=5, metavar="K", help="at most K checkpoints (%(default)s)")
    add_shared(parser, "--output", required=True, metavar="DIR", help="folder of the new model")


def run(options: argparse.Namespace) -> None:
    from ..io.folders import check_new_folder, write_folder_atomically
    from ..loading.models import load_model, save_model
    from ..training.output_folder import Checkpoints, average_checkpoints

    check_new_folder(Path(options.output))
    checkpoints = Checkpoints(Path(options.model) / "checkpoints").all()[-options.last :]
    if not checkpoints:
        raise ValueError(f"{options.model} has no checkpoints to average; give the folder of a training run.")
    model, processor = load_model(Path(options.model) / "last")
    average_checkpoints(model, checkpoints)
    write_folder_atomically(Path(options.output), lambda folder: save_model(model, processor, folder), manifest=False)
    steps = ", ".join(folder.name.removeprefix("step-").lstrip("0") for folder in checkpoints)
    print(f"{options.output} has the mean weights of {len(checkpoints)} checkpoints, after updates {steps}.")

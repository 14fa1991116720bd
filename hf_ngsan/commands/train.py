"""The command `hf-ngsan train`: the training of a model of any task by a training config."""

import argparse
import os
import sys
from typing import Any

from .arguments import add_shared, user_path

SUMMARY = "Train a model from a training config."
EPILOG = """examples:
  hf-ngsan train --config ngsan/scenes
  hf-ngsan train --config ngsan/coco_layout data.spec=coco-layout:DIR training.seed=1
  hf-ngsan train --config ngsan/coco_layout data.spec=coco-layout:DIR --resume
  hf-ngsan train --config ngsan/scenes --stage auto
  hf-ngsan datasets    # kinds of datasets, for data.spec"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    config = "YAML file, or the name of a packaged training config, such as ngsan/scenes"
    add("--config", required=True, type=user_path, metavar="FILE", help=config)
    keys = "change a key of the training config, such as training.epochs=3"
    add("overrides", nargs="*", default=[], metavar="section.key=value", help=keys)
    add("--stage", help="short for training.stage=STAGE, for a captioner: xe, scst, auto or distill")
    add("--resume", action="store_true", help="resume the run in the output folder, if it has one")
    add("--overwrite", action="store_true", help="delete the run in the output folder first")
    add_shared(parser, "--num-processes")


def check(options: argparse.Namespace) -> None:
    from ..training.output_folder import check_output_folder

    check_output_folder(config_of(options), options.resume, options.overwrite)


def run(options: argparse.Namespace) -> None:
    from ..io.processes import leave_process_group
    from ..tasks import train

    config, is_main = config_of(options), os.environ.get("RANK", "0") == "0"
    try:
        result = train(config, resume=options.resume, overwrite=options.overwrite)
    except KeyboardInterrupt:
        if is_main:
            message = "Stopped. The same command with --resume (not --overwrite) continues after the last checkpoint in"
            print(f"{message} {config.output_dir}.", file=sys.stderr)
        raise
    if is_main:
        score = "" if result.best_score is None else f" ({config.evaluation.metric} {result.best_score:.4f})"
        if result.best_dir.is_dir():
            print(f"The best model{score} is in {result.best_dir}.")
    leave_process_group()


def config_of(options: argparse.Namespace) -> Any:
    from ..tasks import load_training_config

    stage = [] if options.stage is None else [f"training.stage={options.stage}"]
    return load_training_config(options.config, [*options.overrides, *stage])

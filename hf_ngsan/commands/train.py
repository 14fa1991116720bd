"""The command `hf-ngsan train`: trains a model of any task from a training config."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..io.messages import sentence
from ..io.packaged import find_config, find_model_folder
from . import calibrate, export
from .arguments import add_shared, user_path

CALIBRATED_WITH = "200"  # photographs of each split at most, so that it takes less than a minute
SUMMARY = "Train a model from a training config."
EPILOG = """examples:
  hf-ngsan train --config ngsan/scenes
  hf-ngsan train --config ngsan/coco_layout data.spec=coco-layout:DIR training.seed=1
  hf-ngsan train --config ngsan/coco_layout data.spec=coco-layout:DIR --resume
  hf-ngsan train --config ngsan/scenes --stage auto
  hf-ngsan datasets    # lists the values of data.spec"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    config = "YAML file, or the name of a packaged training config, such as ngsan/scenes"
    add("--config", required=True, type=user_path, metavar="FILE", help=config)
    keys = "change a key of the training config, such as training.epochs=3"
    add("overrides", nargs="*", default=[], metavar="section.key=value", help=keys)
    add("--stage", help="stage of the training, as training.stage=STAGE; for captioners xe, scst, auto or distill")
    add("--resume", action="store_true", help="resume the run in the output folder, or start one if there is none")
    add("--overwrite", action="store_true", help="delete the run in the output folder first")
    add_shared(parser, "--num-processes")


def check(options: argparse.Namespace) -> None:
    config = training_config(options)
    from ..training.output_folder import check_output_folder

    check_output_folder(config, options.resume, options.overwrite)


def run(options: argparse.Namespace) -> None:
    config, is_main = training_config(options), os.environ.get("RANK", "0") == "0"
    from ..io.processes import leave_process_group
    from ..tasks import train

    try:
        result = train(config, resume=options.resume, overwrite=options.overwrite)
    except KeyboardInterrupt:
        if is_main:
            message = "Stopped. The same command with --resume (not --overwrite) continues from the last checkpoint in"
            print(f"{message} {config.output_dir}.", file=sys.stderr)
        raise
    if is_main:
        score = "" if result.best_score is None else f" ({config.evaluation.metric} {result.best_score:.4f})"
        if result.best_dir.is_dir():
            print(f"The best model{score} is in {result.best_dir}.", flush=True)
            if config.model.get("init_from") is not None:
                complete(config, result.best_dir)
    leave_process_group()


def complete(config: Any, best: Path) -> None:
    """Makes graphs and calibration for a fine-tuned model if its initial model has them, or prints why it cannot."""
    start, data = Path(find_model_folder(config.model["init_from"])), config.data
    splits = ["--split", str(data.validation_split), "--train-split", data.train_split]
    data_options = ["--data", data.spec, *splits, "--limit", CALIBRATED_WITH]
    for made, command, options in (("onnx", export, []), ("confidence.json", calibrate, data_options)):
        has_data = made == "onnx" or (data.validation_split is not None and data.spec.startswith("images:"))
        if not (start / made).exists() or (best / made).exists() or not has_data:
            continue
        parser, words = argparse.ArgumentParser(), ["--model", str(best), *options]
        command.add_arguments(parser)
        try:
            command.run(parser.parse_args(words))
        except (ImportError, OSError, ValueError) as error:
            again = shlex.join(["hf-ngsan", command.__name__.rpartition(".")[2], *words])
            print(f"hf-ngsan: {made} was not written: {sentence(error)} To write it: {again}", file=sys.stderr)


def training_config(options: argparse.Namespace) -> Any:
    stage = [] if options.stage is None else [f"training.stage={options.stage}"]
    overrides = [*options.overrides, *stage]
    if not options.modules:  # modules may register tasks with other keys
        check_file(options.config, overrides)
    from ..tasks import load_training_config

    return load_training_config(options.config, overrides)


def check_file(config: str, overrides: Sequence[str]) -> None:
    """Raises an error, before torch is imported, for a section or key that no task has."""
    from ..tasks.settings import base
    from ..training.config import WITH_LORA, check_keys, keys_of, parse_override, read_with_base

    known: dict[str, dict[str, None]] = {"model": {}, WITH_LORA: {}}
    for task in base.TrainingConfig.__subclasses__():
        for section, kind in task.sections().items():
            known.setdefault(section, {}).update(keys_of(kind))
    path = find_config(config)
    keys = {section: [*values] for section, values in read_with_base(path).items()}
    for section, key, _ in map(parse_override, overrides):
        keys.setdefault(section, []).append(key)
    check_keys(keys, known, str(path))

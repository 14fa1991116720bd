"""The command `hf-ngsan evaluate`: scores a model of any task on a split of a dataset."""

import argparse
import json
import os
from typing import Any

from ..io.packaged import own_model_folder
from .arguments import DATA, GENERATION, MODEL, add_shared, check_outputs, pick, user_path

SUMMARY = """Score a model on a split of a dataset.

The output is JSON with the same scores that training reports."""
EPILOG = """examples:
  hf-ngsan evaluate --model runs/scenes --data scenes --num-beams 3 --output captions.json
  hf-ngsan evaluate --model runs/first runs/second runs/third --data features:DIR
  hf-ngsan evaluate --model DUAL_ENCODER --data features:DIR --folds 5 --output ranks.json
  hf-ngsan evaluate --model runs/multi30k --data parallel:DIR,source=en,target=de --output translations.txt"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model", nargs="+", help=f"{MODEL}; several models form an ensemble")
    add_shared(parser, *DATA, "--engine", "--num-processes")
    add_shared(parser, "--batch-size", default=64)
    add_shared(parser, "--output", help="file for captions (COCO results), ranks, translations, answers (VQA results)")
    recorded = "also write scores and settings for the model card into the folder of the model, or into FILE"
    parser.add_argument("--record", nargs="?", const="", type=user_path, metavar="FILE", help=recorded)
    from ..tasks.registry import TASKS, task_class

    parser.conflict_handler = "resolve"  # several tasks may have the same option
    texts = parser.add_argument_group("options for models that generate text")
    add_shared(texts, *GENERATION)
    owners: dict[str, list[str]] = {}
    defaults: dict[str, Any] = {}
    for task in TASKS:
        kind: Any = task_class(task)
        kind.add_evaluation_options(parser.add_argument_group(f"options for {kind.model_noun}"))
        alone = argparse.ArgumentParser(add_help=False)
        kind.add_evaluation_options(alone)
        add_shared(alone, *(GENERATION if kind.writes_text else ()))
        for name, default in vars(alone.parse_args([])).items():
            owners.setdefault(name, []).append(task)
            defaults[name] = default
    parser.set_defaults(owners=owners, option_defaults=defaults)


def task_options(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the task options that differ from their defaults."""
    values = {name: getattr(options, name) for name in options.owners}
    return {name: value for name, value in values.items() if value != options.option_defaults[name]}


def check(options: argparse.Namespace) -> None:
    check_outputs({"--output": options.output, "--record": options.record}, [options.data])
    if options.record == "":
        if len(options.model) > 1:
            raise ValueError("--record without a file needs a single model; give one model, or --record FILE.")
        own_model_folder(options.model[0])
    from ..loading.models import load_config, task_of
    from ..tasks.registry import TASKS, task_class

    task = task_of(load_config(options.model[0]))
    for name in task_options(options):
        if task not in options.owners[name]:
            nouns = " or ".join(task_class(owner).model_noun for owner in options.owners[name])
            raise ValueError(f"--{name.replace('_', '-')} is for {nouns}; leave it out for this model.")
    if options.output and task in TASKS and not task_class(task).has_results:
        raise ValueError(f"--output is not available for {task_class(task).model_noun}; leave it out.")


def run(options: argparse.Namespace) -> None:
    check(options)
    from ..io.processes import leave_process_group
    from ..sharing import record
    from ..tasks import evaluate

    arguments = task_options(options)
    arguments |= dict(arguments.pop("generate", ()))
    dataset = pick(options, "data", "split")
    evaluation = evaluate(options.model, **dataset, **pick(options, "limit", "batch_size", "engine"), **arguments)
    if os.environ.get("RANK", "0") == "0":
        if options.output:
            evaluation.save(options.output)
        if options.record is not None:
            record(options.model, **dataset, evaluation=evaluation, file=options.record or None)
        print(json.dumps(evaluation.scores if evaluation.report is None else evaluation.report, indent=2))
    leave_process_group()

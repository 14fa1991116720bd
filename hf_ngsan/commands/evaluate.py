"""The command `hf-ngsan evaluate`: the scores of a model of any task on a split of a dataset."""

import argparse
import json
import os
from typing import Any

from .arguments import DATA, GENERATION, MODEL, add_shared, check_outputs, pick, user_path

SUMMARY = """Score a model on a split of a dataset.

The output is JSON with the scores that training of the model reports."""
EPILOG = """examples:
  hf-ngsan evaluate --model runs/scenes --data scenes --num-beams 3 --output captions.json
  hf-ngsan evaluate --model runs/first runs/second runs/third --data features:DIR
  hf-ngsan evaluate --model DUAL_ENCODER --data features:DIR --folds 5 --output ranks.json
  hf-ngsan evaluate --model runs/multi30k --data parallel:DIR,source=en,target=de --output translations.txt"""


class TaskOptions:
    """Evaluation options of all tasks in one parser, where several tasks may have the same option."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        from ..tasks.registry import TASKS, task_class

        self.actions: dict[str, argparse.Action] = {}  # by their names in the parsed namespace
        self.owners: dict[str, list[str]] = {}  # the tasks that have an option
        for self.task in TASKS:
            kind: Any = task_class(self.task)
            self.group = parser.add_argument_group(f"for {kind.model_noun}")
            if kind.writes_text:
                add_shared(self, *GENERATION)
            kind.add_evaluation_options(self)

    def add_argument(self, name: str, **settings: Any) -> None:
        dest = settings.get("dest", name.lstrip("-").replace("-", "_"))
        if dest not in self.actions:
            self.actions[dest] = self.group.add_argument(name, **settings)
        self.owners.setdefault(dest, []).append(self.task)

    def given(self, options: argparse.Namespace) -> dict[str, Any]:
        """Returns the options that differ from their defaults, by their names in the namespace."""
        values = {dest: getattr(options, dest) for dest in self.actions}
        return {dest: value for dest, value in values.items() if value != self.actions[dest].default}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model", nargs="+", help=f"{MODEL}; several models form an ensemble")
    add_shared(parser, *DATA, "--engine", "--num-processes")
    add_shared(parser, "--batch-size", default=64)
    add_shared(parser, "--output", help="write captions (COCO results), ranks, translations or answers (VQA results)")
    recorded = "also write the scores and their settings into the folder of the model, for its card, or into a file"
    parser.add_argument("--record", nargs="?", const="", type=user_path, metavar="FILE", help=recorded)
    parser.set_defaults(task_options=TaskOptions(parser))


def check(options: argparse.Namespace) -> None:
    check_outputs({"--output": options.output, "--record": options.record}, [options.data])
    from ..loading.models import find_model_folder, load_config, task_of
    from ..tasks.registry import TASKS, task_class

    if options.record == "" and (len(options.model) > 1 or not os.path.isdir(find_model_folder(options.model[0]))):
        raise ValueError("--record writes into the folder of one model; give one folder, or --record FILE.")
    task = task_of(load_config(options.model[0]))
    own: TaskOptions = options.task_options
    for dest in own.given(options):
        if task not in own.owners[dest]:
            nouns = " or ".join(task_class(owner).model_noun for owner in own.owners[dest])
            raise ValueError(f"{own.actions[dest].option_strings[0]} is for {nouns}; leave it out for this model.")
    if options.output and task in TASKS and not task_class(task).has_results:
        raise ValueError(f"--output has nothing to write for {task_class(task).model_noun}; leave it out.")


def run(options: argparse.Namespace) -> None:
    check(options)
    from ..io.processes import leave_process_group
    from ..sharing import record
    from ..tasks import evaluate

    given = options.task_options.given(options)
    given |= dict(given.pop("generate", ()))
    dataset = pick(options, "data", "split")
    evaluation = evaluate(options.model, **dataset, **pick(options, "limit", "batch_size", "engine"), **given)
    if os.environ.get("RANK", "0") == "0":
        if options.output:
            evaluation.save(options.output)
        if options.record is not None:
            record(options.model, **dataset, evaluation=evaluation, file=options.record or None)
        print(json.dumps(evaluation.scores if evaluation.report is None else evaluation.report, indent=2))
    leave_process_group()

"""The command `hf-ngsan evaluate`: the scores of a model of any task on a split of a dataset."""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .arguments import DATA, DATASETS, GENERATION, MODEL, add_shared, check_data, check_outputs, pick, user_path

SUMMARY = """Score a model on a split of a dataset.

The output is JSON with the scores that training of the model reports."""
EPILOG = f"""examples:
  hf-ngsan evaluate --model runs/scenes --data scenes --num-beams 3 --output captions.json
  hf-ngsan evaluate --model runs/first runs/second runs/third --data features:DIR
  hf-ngsan evaluate --model DUAL_ENCODER --data features:DIR --folds 5 --output ranks.json
  hf-ngsan evaluate --model runs/multi30k --data parallel:DIR,source=en,target=de --output translations.txt

{DATASETS}"""


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


def check(options: argparse.Namespace) -> str:
    """Returns the task of the models; raises an error for options that do not fit it."""
    check_data(options.data)
    check_outputs({"--output": options.output, "--record": options.record}, [options.data])
    from ..loading.models import ModelFolderError, find_model_folder, load_config, task_of
    from ..tasks.registry import TASKS, task_class

    if options.record == "" and (len(options.model) > 1 or not os.path.isdir(find_model_folder(options.model[0]))):
        raise ValueError("--record writes into the folder of one model; give one folder, or --record FILE.")
    config = load_config(options.model[0])
    task = task_of(config)
    if task not in TASKS:
        raise ModelFolderError(f"{options.model[0]} holds a {config.model_type} model, which no task evaluates.")
    kind = task_class(task)
    for model in options.model[1:]:
        if not kind.can_ensemble:
            raise ValueError(f"{options.model[0]} is {kind.model_noun}, which is evaluated alone; give one --model.")
        load_config(model, task)
    own: TaskOptions = options.task_options
    for dest in own.given(options):
        if task not in own.owners[dest]:
            nouns = " or ".join(task_class(owner).model_noun for owner in own.owners[dest])
            name = own.actions[dest].option_strings[0]
            raise ValueError(f"{name} is for {nouns}, and this model is {kind.model_noun}; leave it out.")
    if options.output and not kind.has_results:
        raise ValueError(f"--output has nothing to write for {kind.model_noun}; leave it out.")
    return task


def run(options: argparse.Namespace) -> None:
    from ..io.processes import leave_process_group, make_accelerator
    from ..loading.engines import use_engine
    from ..tasks.registry import task_class
    from ..training.run import load_split

    name = check(options)
    kind, accelerator = task_class(name), make_accelerator()
    model, processor = kind.load(options.model, name)
    use_engine(model.to(accelerator.device), processor, options.engine)
    sections = {
        "model": {"init_from": options.model[0]},
        "data": {"spec": options.data, "limit": options.limit},
        "evaluation": {"batch_size": options.batch_size},
    }
    task = kind(kind.config_class.from_dict(sections, "the command line"))
    rows = task.evaluation_rows(model, processor, load_split(task.load_rows, options.split, options.data))
    given = options.task_options.given(options)
    given |= dict(given.pop("generate", ()))
    evaluation = task.evaluate_all(model, processor, rows, accelerator, **given)
    if accelerator.is_main_process:
        if options.output:
            evaluation.save(options.output)
        if options.record is not None:
            record(options, model, processor, kind, evaluation, len(rows), given)
        print(json.dumps(evaluation.scores if evaluation.report is None else evaluation.report, indent=2))
    leave_process_group()


def record(
    options: argparse.Namespace, model: Any, processor: Any, kind: Any, result: Any, rows: int, given: dict
) -> None:
    """Writes the scores and their settings into a file or the model's folder, which also gets a self-test."""
    from ..io.files import write_output
    from ..languages import language_of
    from ..loading.hub import write_self_test
    from ..loading.models import find_model_folder
    from ..sharing.cards import RecordedEvaluation, fingerprints_of, record_evaluation, weights_checksum

    folder = Path(find_model_folder(options.model[0]))
    generation = getattr(model, "generation_config", None)
    given = {"language": language_of(getattr(processor, "tokenizer", None)), **given}
    fingerprints = fingerprints_of(kind, result, {} if generation is None else generation.to_dict(), given)
    facts: Any = {"rows": rows, "scores": dict(result.scores), "fingerprints": fingerprints}
    found = RecordedEvaluation(**pick(options, "data", "split"), **facts, weights=weights_checksum(folder))
    if options.record:
        write_output(options.record, json.dumps({"model": options.model, **asdict(found)}, indent=1) + "\n")
    else:
        record_evaluation(folder, found)
        write_self_test(model, processor, folder)

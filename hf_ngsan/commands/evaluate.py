"""The command `hf-ngsan evaluate`: the scores of a model of any task on a split of a dataset."""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import (
    DATASETS,
    add_batch_size_argument,
    add_data_arguments,
    add_engine_argument,
    add_generation_arguments,
    add_launch_argument,
    add_model_argument,
    check_data,
    check_output_files,
    generation_arguments,
    user_path,
)

if TYPE_CHECKING:
    from ..training.task import Evaluation, Task

SUMMARY = """Score a model on a split of a dataset.

The output is JSON with the scores that training of the model reports."""
EPILOG = f"""examples:
  hf-ngsan evaluate --model runs/scenes --data scenes --num-beams 3 --output captions.json
  hf-ngsan evaluate --model runs/first runs/second runs/third --data features:DIR
  hf-ngsan evaluate --model DUAL_ENCODER --data features:DIR --folds 5 --output ranks.json
  hf-ngsan evaluate --model runs/language_model --data features:DIR
  hf-ngsan evaluate --model runs/multi30k --data parallel:DIR,source=en,target=de --output translations.txt
  hf-ngsan evaluate --model runs/nlvr --data nlvr:DIR --output answers.json

{DATASETS}"""


class TaskOptions:
    """Evaluation options of all tasks in one parser, where several tasks may have the same option.

    Attributes:
        owners: the tasks that have an option, by its name in the parsed namespace, as all attributes.
        names: the options as they are written, such as `--num-beams`.
        defaults: default values.
    """

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        self.owners: dict[str, list[str]] = {}
        self.names: dict[str, str] = {}
        self.defaults: dict[str, Any] = {}

    def add(self, task: str) -> None:
        """Adds the options of a task."""
        from ..tasks.registry import task_class

        kind: Any = task_class(task)
        self.task, self.group = task, self.parser.add_argument_group(f"for {kind.model_noun}")
        if kind.writes_text:
            add_generation_arguments(self)  # type: ignore[arg-type]  # it only calls add_argument
        kind.add_evaluation_options(self)

    def add_argument(self, name: str, **settings: Any) -> None:
        dest = settings.get("dest", name.lstrip("-").replace("-", "_"))
        if dest not in self.owners:
            action = self.group.add_argument(name, **settings)
            self.owners[dest], self.names[dest], self.defaults[dest] = [], name, action.default
        self.owners[dest].append(self.task)

    def given(self, options: argparse.Namespace) -> dict[str, Any]:
        """Returns the options that differ from their defaults, by their names in the namespace."""
        values = {dest: getattr(options, dest) for dest in self.owners}
        return {dest: value for dest, value in values.items() if value != self.defaults[dest]}

    def arguments(self, options: argparse.Namespace) -> dict[str, Any]:
        """Returns the arguments of the task's `evaluate`: the given options, with each argument of `generate()`."""
        given = {name: value for name, value in self.given(options).items() if name != "generate"}
        return given | generation_arguments(options)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser, or_ensemble=True)
    add_data_arguments(parser)
    add_batch_size_argument(parser, 64)
    add_engine_argument(parser)
    parser.add_argument(
        "--output",
        type=user_path,
        metavar="FILE",
        help="write the result of each row: captions in the COCO result format, ranks of the right answers, "
        "translations one a line, or answers in the format of VQA's results",
    )
    parser.add_argument(
        "--record",
        nargs="?",
        const="",
        type=user_path,
        metavar="FILE",
        help="also write the scores and their settings into the folder of the model, for the card of hf-ngsan push, or "
        "into a file",
    )
    add_launch_argument(parser)
    from ..tasks.registry import TASKS

    own = TaskOptions(parser)
    for task in TASKS:
        own.add(task)
    parser.set_defaults(task_options=own)


def check(options: argparse.Namespace) -> str:
    """Returns the task of the models; raises an error for options that do not fit it."""
    check_data(options.data)
    check_output_files({"--output": options.output, "--record": options.record}, [options.data])
    from ..loading.models import ModelFolderError, find_model_folder, load_config, task_of
    from ..tasks.registry import TASKS, task_class

    if options.record == "" and (len(options.model) > 1 or not os.path.isdir(find_model_folder(options.model[0]))):
        raise ValueError(
            "--record writes into the folder of one model; give one --model that is a folder, or --record FILE."
        )
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
            raise ValueError(f"{own.names[dest]} is for {nouns}, and this model is {kind.model_noun}; leave it out.")
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
    task = kind(config_of(kind, options))
    rows = task.evaluation_rows(model, processor, load_split(task.load_rows, options.split, options.data))
    given = options.task_options.arguments(options)
    evaluation = task.evaluate_all(model, processor, rows, accelerator, **given)
    if accelerator.is_main_process:
        if options.output:
            evaluation.save(options.output)
        if options.record is not None:
            record(options, kind, len(rows), evaluation, model, processor)
        print(json.dumps(evaluation.scores if evaluation.report is None else evaluation.report, indent=2))
    leave_process_group()


def config_of(kind: type["Task"], options: argparse.Namespace) -> Any:
    """Returns the training config of an evaluation with the arguments of the command."""
    sections = {
        "model": {"init_from": options.model[0]},
        "data": {"spec": options.data, "limit": options.limit},
        "evaluation": {"batch_size": options.batch_size},
    }
    return kind.config_class.from_dict(sections, "the command line")


def record(
    options: argparse.Namespace, kind: type["Task"], rows: int, evaluation: "Evaluation", model: Any, processor: Any
) -> None:
    """Writes the scores, with the settings that they depend on, into the file asked for or the folder of the model.

    The folder also gets outputs of the model, for `hf-ngsan inspect --self-test`.
    """
    from ..io.files import write_output
    from ..loading.models import find_model_folder
    from ..loading.self_test import write_self_test
    from ..sharing.facts import (
        RecordedEvaluation,
        fingerprints_of,
        record_evaluation,
        weights_checksum,
    )

    folder = Path(find_model_folder(options.model[0]))
    generation = getattr(model, "generation_config", None)
    settings = {} if generation is None else generation.to_dict()
    found = RecordedEvaluation(
        data=options.data,
        split=options.split,
        rows=rows,
        scores=dict(evaluation.scores),
        fingerprints=fingerprints_of(kind, evaluation, settings, options.task_options.arguments(options)),
        weights=weights_checksum(folder),
    )
    if options.record:
        write_output(options.record, json.dumps({"model": options.model, **asdict(found)}, indent=1) + "\n")
        return
    record_evaluation(folder, found)
    write_self_test(model, processor, folder)

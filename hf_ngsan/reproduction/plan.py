"""The trainings and evaluations behind a table: their training configs, folders and data, checked before any begins.

```python
plan = make_plan(find_table("ngsan", "4"), data="scenes", seeds=range(3), output=Path("runs/reproduce"))
plan.runs[0].commands
```
"""

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..data import DataError
from ..data.contract import ARRAY_COLUMNS
from ..loading.models import load_model, quiet_loading
from ..metrics import CaptionMetrics
from ..metrics.comparison import MIN_ITEMS
from ..metrics.meteor_resources import MeteorDataMissing, meteor_folder
from ..tasks import load_training_config, train
from ..tasks.registry import task_class_of
from ..training import TrainingConfig
from ..training.config import ConfigError, ScheduleSettings, parse_override, section_of
from ..training.output_folder import check_output_folder
from ..training.run import load_split, short_checksum
from . import Run, Table, UnknownTableError, select_rows

MEASURED_BATCHES = 8
ALIKE = ("training.tracker=null",)
"""Changes to every training config."""
OWN_OPTIONS = {"training.seed": "--seeds and --first-seed", "training.output_dir": "--output", "data.spec": "--data"}
"""Keys of each run, and the options of the command that they follow from."""


@dataclass(frozen=True)
class PlannedRun:
    """A training with a seed, and its evaluation.

    Attributes:
        run: row of the paper.
        seed: seed of the training.
        folder: folder of the training; its other files stand beside it.
        config: its training config.
        commands: arguments of `hf-ngsan train` and `hf-ngsan evaluate`.
    """

    run: Run
    seed: int
    folder: Path
    config: TrainingConfig
    commands: tuple[list[str], list[str]]

    def file(self, suffix: str) -> Path:
        """Returns a file beside the folder: `.log`, `.results`, `.scores.json` or `.record.json`."""
        return self.folder.with_name(self.folder.name + suffix)

    def is_done(self) -> bool:
        return self.file(".record.json").is_file()


@dataclass(frozen=True)
class Plan:
    """The trainings of a table, and the data that they are evaluated on.

    Attributes:
        table: the table.
        names: names of the rows that are trained.
        seeds: seeds of each row.
        runs: trainings, those that others need first, then by seed, so that an unfinished queue compares all rows.
        spec, split: the data, and the split that is evaluated.
        rows: rows of that split.
        facts: numbers and checksums of the rows of both splits, for the record.
        is_papers: whether there are as many rows as in the paper's data.
    """

    table: Table
    names: list[str]
    seeds: list[int]
    runs: list[PlannedRun]
    spec: str
    split: str
    rows: Dataset
    facts: dict[str, Any]
    is_papers: bool


def make_plan(
    table: Table,
    *,
    output: Path,
    data: str | None = None,
    scale: str | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    only: list[str] | None = None,
    overrides: Sequence[str] = (),
    threads: int | None = 1,
) -> Plan:
    """Plans the runs of a table, and checks data, training configs and folders.

    Args:
        table: the table.
        output: folder of the runs.
        data: spec of the dataset; the paper's if `None`. The name of a reader alone, such as `scenes`, is the spec of
            the small training config, if that is taken.
        scale: "paper" for the paper's training configs, "small" for those of other data; by default "paper" for data
            of the same reader as the paper's.
        seeds: seeds of the trainings.
        only: names of the rows; all by default.
        overrides: changes to every training config, except of what distinguishes its runs.
        threads: CPU threads of each training; `None` leaves them to the training config.

    Raises:
        UnknownTableError: no such row, or no small training config for such data.
        DataError: the data are missing or too few, or have no boxes for a row with geometry.
        ConfigError: an override of what distinguishes the runs.
        ConfigError, FileExistsError: a folder has a run with other settings.
    """
    names = select_rows(table, only)
    own = load_training_config(table.runs[names[0]].config)
    reader = own.data.spec.partition(":")[0] if data is None else data.partition(":")[0]
    is_own = reader == own.data.spec.partition(":")[0]
    scale = scale or ("paper" if is_own else "small")
    if scale == "small" and reader not in table.small:
        raise UnknownTableError(
            f"Table {table.number} of {table.paper} has no small training configs for {reader}; they are for "
            f"{', '.join(table.small)}. --scale paper takes the paper's."
        )
    settings = table.small[reader] if scale == "small" else {"split": "test", "settings": table.paper_settings}
    changes = [*settings["settings"].split(), *ALIKE, *([] if threads is None else [f"training.num_threads={threads}"])]
    if data is not None and (data != reader or (scale == "paper" and not is_own)):
        changes.append(f"data.spec={data}")
    evaluation = table.paper_evaluation.split() if scale == "paper" else []
    metrics: list[str] = []
    if "meteor" in table.metrics:
        with suppress(MeteorDataMissing):  # without the extra `eval`
            meteor_folder()
            metrics = ["--metrics", *CaptionMetrics.DEFAULT, "meteor"]

    def plan_run(run: Run, seed: int) -> PlannedRun:
        folder = output / "runs" / f"{folder_name(run.name)}-{seed}"
        config, own_changes = run.config, run.paper_changes
        if scale == "small":
            config, own_changes = run.small.get(reader, settings["config"]), run.changes
        arguments = [*changes_of(config, changes), *own_changes.split(), f"training.seed={seed}"]
        arguments.append(f"training.output_dir={folder}")
        if run.needs is not None:
            of_language = output / "runs" / f"{folder_name(run.needs)}-{seeds[0]}"
            arguments.append(f"model.pretrained_language_model={of_language}")
        arguments += changes_of(config, overrides)
        training_config = load_training_config(config, arguments)
        check_output_folder(training_config, resume=True, overwrite=False)
        training = ["train", "--config", config, *arguments, "--resume"]
        scoring = [
            "evaluate",
            "--model",
            str(folder),
            "--data",
            training_config.data.spec,
            "--split",
            settings["split"],
        ]
        if training_config.data.limit is not None:
            scoring += ["--limit", str(training_config.data.limit)]
        scoring += evaluation
        if run.name in table.rows:
            scoring += [*metrics, "--output", f"{folder}.results"]
        scoring += ["--record", f"{folder}.scores.json"]
        return PlannedRun(run, seed, folder, training_config, (training, scoring))

    check_overrides(overrides, table, type(own))
    needed = dict.fromkeys(table.runs[name].needs for name in names)
    runs = [plan_run(table.runs[name], seeds[0]) for name in needed if name is not None]
    runs += [plan_run(table.runs[name], seed) for seed in seeds for name in names]
    training_config = next(planned.config for planned in runs if planned.run.name in names)
    task, spec, split = (
        task_class_of(training_config.model)(training_config),
        training_config.data.spec,
        settings["split"],
    )
    rows = load_split(task.load_rows, split, spec)
    trained = task.load_rows(training_config.data.train_split)
    check_rows(rows, trained, [planned for planned in runs if planned.seed == seeds[0]], spec, split)
    facts = {
        "spec": spec,
        "split": split,
        "rows": len(rows),
        "checksum": checksum(rows),
        "training_rows": len(trained),
        "training_checksum": checksum(trained),
    }
    is_papers = (len(trained), len(rows)) == (table.data["train"], table.data["evaluated"])
    return Plan(table, names, list(seeds), runs, spec, split, rows, facts, is_papers)


def folder_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def changes_of(config: str, changes: Sequence[str]) -> list[str]:
    """Returns the changes whose keys a training config has; that of a language model has fewer than a captioner's."""
    sections = load_training_config(config).sections()
    known = {f"{section}.{entry.name}" for section, kind in sections.items() for entry in fields(kind)}
    return [text for text in changes if text.startswith("model.") or "." not in text or text.split("=")[0] in known]


def check_overrides(overrides: Sequence[str], table: Table, kind: type[TrainingConfig]) -> None:
    """Raises a ConfigError for an override, such as `training.epochs=3`, of what distinguishes the runs of a table."""
    changes = " ".join(f"{run.paper_changes} {run.changes}" for run in table.runs.values()).split()
    of_rows = {text.partition("=")[0] for text in changes} | {"model.pretrained_language_model"}
    for text in overrides:
        section, key, _ = parse_override(text)
        name = f"{section or section_of(key, kind)}.{key}"
        if name in OWN_OPTIONS:
            raise ConfigError(f"{name} is set for each run of a table; leave it out, and give {OWN_OPTIONS[name]}.")
        if name in of_rows:
            raise ConfigError(f"{name} distinguishes the rows of this table; leave it out.")


def check_rows(rows: Dataset, trained: Dataset, runs: list[PlannedRun], spec: str, split: str) -> None:
    if len(rows) < MIN_ITEMS:
        raise DataError(
            f"{spec}, split {split}, has {len(rows)} rows; the bootstrap of a table needs {MIN_ITEMS} or more."
        )
    columns = trained.column_names
    if "visual_features" in columns and "visual_boxes" not in columns:
        names = [planned.run.name for planned in runs if needs_boxes(planned.config)]
        if names:
            raise DataError(
                f"{spec} has no visual_boxes, which {'; '.join(names)} need{'s' if len(names) == 1 else ''}; give "
                "features with boxes, or name other rows with --only."
            )


def needs_boxes(config: TrainingConfig) -> bool:
    return bool(config.model.get("geometric_bias") or config.model.get("absolute_geometry"))


def checksum(rows: Dataset) -> str:
    """Returns a checksum of all columns of rows but images, features and boxes."""
    names = [name for name in rows.column_names if name not in (*ARRAY_COLUMNS, "image")]
    return short_checksum([rows.with_format(None).select_columns([name])[name][:] for name in sorted(names)])


def measure(plan: Plan) -> Iterator[tuple[PlannedRun, int, float]]:
    """Measures some steps of each row; yields parameters and the seconds of a whole training without evaluations."""
    number = len({planned.run.name for planned in plan.runs})
    with tempfile.TemporaryDirectory() as folder, quiet_loading():
        for planned in plan.runs[:number]:  # those of the first seed
            needed = None if planned.run.needs is None else Path(folder, folder_name(planned.run.needs))
            own = Path(folder, folder_name(planned.run.name))
            yield planned, *measure_steps(planned.config, plan.facts["training_rows"], own, needed)


def measure_steps(
    config: TrainingConfig, training_rows: int, folder: Path, language_model: Path | None
) -> tuple[int, float]:
    """Trains two short epochs into a folder; the second one, when everything is warm, counts."""
    number = min(training_rows, MEASURED_BATCHES * config.training.batch_size)
    brief: Any = {
        name: replace(getattr(config, name), epochs=2)
        for name, kind in config.sections().items()
        if issubclass(kind, ScheduleSettings)
    }
    brief["training"] = replace(brief["training"], output_dir=str(folder))
    brief["data"] = replace(config.data, limit=number, validation_split=None)
    if language_model is not None:
        brief["model"] = {**config.model, "pretrained_language_model": str(language_model)}
    result = train(replace(config, **brief))
    trained: Any = load_model(result.best_dir)[0]
    last = {entry.get("stage", "xe"): entry["seconds"] for entry in result.history}
    sections = {"xe": "training", "joint": "training", "scst": "self_critical"}
    epochs = {stage: getattr(config, sections.get(stage, f"{stage}_stage"), config.training).epochs for stage in last}
    seconds = sum(seconds * epochs[stage] for stage, seconds in last.items()) * training_rows / number
    return trained.num_parameters(), seconds

"""The tables of papers as data in this folder, and the training runs and evaluations for each of them.

```python
plan = make_plan(find_table("ngsan", "4"), data="scenes", seeds=range(3), output=Path("runs/reproduce"))
plan.runs[0].commands  # these are run by `results.reproduce`
```
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml
from datasets import Dataset

from ..data import DataError
from ..data.contract import ARRAY_COLUMNS
from ..metrics import CaptionMetrics
from ..metrics.comparison import MIN_ITEMS
from ..metrics.meteor_english import meteor_folder
from ..tasks import load_training_config
from ..tasks.registry import task_class_of
from ..training import TrainingConfig
from ..training.config import ConfigError, parse_override
from ..training.output_folder import check_output_folder
from ..training.run import load_split, short_checksum

PAPERS = {file.stem: file for file in sorted(Path(__file__).parent.glob("*.yaml"))}
OWN_OPTIONS = {"training.seed": "--seeds and --first-seed", "training.output_dir": "--output", "data.spec": "--data"}
"""Keys of each run that follow from options of the command."""


class UnknownTableError(ValueError):
    """An unknown paper, table or row; the message lists the known ones."""


@dataclass(frozen=True)
class Run:
    """A model that is trained for a table; the fields are the keys of a row in a paper's file."""

    name: str
    config: str  # training config of the paper's row
    changes: str = ""  # changes for this row to the training config of other data
    paper_changes: str = ""  # changes to `config` for rows without a packaged config
    small: Mapping[str, str] = field(default_factory=dict)  # configs of other data, by reader, specific to this row
    needs: str | None = None  # another run, a language model that must be trained first
    ours: bool = False  # not in the paper


@dataclass(frozen=True)
class Table:
    """A table of a paper."""

    number: str
    title: str
    source: str
    metrics: tuple[str, ...]
    compared: tuple[str, ...]  # metrics by which rows are compared
    rows: Mapping[str, Mapping[str, float]]  # numbers of the paper by row and metric, in its units
    runs: Mapping[str, Run]  # the run of each row, and runs that these need
    baselines: Mapping[str, str]  # baseline row of each other row
    data: Mapping[str, Any]  # `name` of the paper's data, and numbers of rows, `train` and `evaluated`
    paper_settings: str  # changes to the paper's training configs
    paper_evaluation: str  # options of the paper's evaluations
    small: Mapping[str, Mapping[str, str]]  # `config`, `split` and `settings` of other data, by reader


@dataclass(frozen=True)
class PlannedRun:
    """A training run with a seed and its evaluation, as two commands of `hf-ngsan`."""

    run: Run
    seed: int
    folder: Path
    config: TrainingConfig
    commands: tuple[list[str], list[str]]

    def file(self, suffix: str) -> Path:
        """Returns a file next to the folder: `.log`, `.results`, `.scores.json` or `.record.json`."""
        return self.folder.with_name(self.folder.name + suffix)

    def is_done(self) -> bool:
        return self.file(".record.json").is_file()


@dataclass(frozen=True)
class Plan:
    """The training runs of a table, and the rows of the evaluation split."""

    table: Table
    output: Path
    names: list[str]
    seeds: list[int]
    runs: list[PlannedRun]  # required runs first, then by seed, so that an unfinished queue covers all rows
    spec: str
    split: str
    rows: Dataset
    facts: dict[str, Any]  # numbers and checksums of the rows of both splits, for records
    is_papers: bool  # whether the numbers of rows are those of the paper's data


def find_table(paper: str, number: str) -> Table:
    """Returns a table of a paper, or raises an UnknownTableError."""
    if paper not in PAPERS:
        raise UnknownTableError(f"Unknown paper {paper!r}; choose from {', '.join(PAPERS)}.")
    content = yaml.safe_load(PAPERS[paper].read_text(encoding="utf-8"))
    tables = content["tables"]
    if number not in tables:
        listed = ", ".join(f"{name} ({table['title']})" for name, table in tables.items())
        raise UnknownTableError(f"{paper} has no reproducible table {number!r}; available: {listed}.")
    table = {"paper_evaluation": "", "against": {}, "changes": {}, **content, **tables[number]}
    metrics = tuple(table["metrics"])
    rows = {
        name: {metric: value for metric, value in zip(metrics, numbers, strict=False) if value is not None}
        for name, numbers in table["rows"].items()
    }
    runs = {name: Run(name, **content["rows"][name]) for name in rows}
    runs |= {run.needs: Run(run.needs, **content["rows"][run.needs]) for run in runs.values() if run.needs}
    return Table(
        number=number,
        source=content["paper"],
        metrics=metrics,
        compared=tuple(table.get("compared", metrics[:1])),
        rows=rows,
        runs=runs,
        baselines={name: table["against"].get(name, table["baseline"]) for name in rows if name != table["baseline"]},
        **{name: table[name] for name in ("title", "data", "paper_settings", "paper_evaluation")},
        small={
            reader: {**settings, "settings": f"{settings.get('settings', '')} {table['changes'].get(reader, '')}"}
            for reader, settings in table["small"].items()
        },
    )


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
    """Plans the runs of a table in a folder, and checks data, training configs and folders.

    Args:
        data: spec of the dataset; the paper's if `None`. The name of a reader alone, such as `scenes`, means the spec
            in the small training config.
        scale: "paper" or "small" training configs; by default, "paper" for data of the same reader as the paper's.
        only: names of the rows; all by default.
        overrides: changes to every training config, except to keys that distinguish its runs.
        threads: CPU threads of each run; `None` uses the value of the training config.
    """
    unknown = [name for name in only or () if name not in table.rows]
    if unknown:
        raise UnknownTableError(f"The table has no row {unknown[0]!r}; available: {'; '.join(table.rows)}.")
    names = [name for name in table.rows if only is None or name in only]
    check_overrides(overrides, table)
    how = choose_scale(table, table.runs[names[0]].config, data, scale, threads)
    needed = [table.runs[need] for need in dict.fromkeys(table.runs[name].needs for name in names) if need]
    planned = [(run, seeds[0]) for run in needed] + [(table.runs[name], seed) for seed in seeds for name in names]
    runs = [plan_run(table, run, seed, how, output / "runs", seeds[0], overrides) for run, seed in planned]
    config = runs[len(needed)].config
    task = task_class_of(config.model)(config)
    rows = load_split(task.load_rows, how.split, config.data.spec)
    trained = task.load_rows(config.data.train_split)
    if len(rows) < MIN_ITEMS:
        counted = f"{config.data.spec} has {len(rows)} rows of {how.split}"
        raise DataError(f"{counted}; a bootstrap needs {MIN_ITEMS} or more.")
    facts = {"spec": config.data.spec, "split": how.split, "rows": len(rows), "checksum": checksum(rows)}
    facts |= {"training_rows": len(trained), "training_checksum": checksum(trained)}
    is_papers = (len(trained), len(rows)) == (table.data["train"], table.data["evaluated"])
    return Plan(table, output, names, list(seeds), runs, config.data.spec, how.split, rows, facts, is_papers)


@dataclass(frozen=True)
class Scale:
    """The training configs of a plan: those of the paper, or small ones for data of a reader."""

    small: Mapping[str, str] | None  # the table's settings for the reader; None for the paper's
    reader: str
    split: str
    changes: list[str]  # changes to every training config that has the keys
    options: list[str]  # options of evaluations


def choose_scale(table: Table, config: str, data: str | None, scale: str | None, threads: int | None) -> Scale:
    """Returns the training configs for a dataset; `config` is one of the paper."""
    own_reader = load_training_config(config).data.spec.partition(":")[0]
    reader = own_reader if data is None else data.partition(":")[0]
    is_small = (scale or ("paper" if reader == own_reader else "small")) == "small"
    if is_small and reader not in table.small:
        known = ", ".join(table.small)
        raise UnknownTableError(f"There are small training configs for {known}, not for {reader}; try --scale paper.")
    small = table.small[reader] if is_small else None
    changes = [*(table.paper_settings if small is None else small["settings"]).split(), "training.tracker=null"]
    if threads is not None:
        changes.append(f"training.num_threads={threads}")
    if data is not None and (data != reader or (small is None and reader != own_reader)):
        changes.append(f"data.spec={data}")
    options = [] if is_small else table.paper_evaluation.split()
    return Scale(small, reader, "test" if small is None else small["split"], changes, options)


def plan_run(
    table: Table, run: Run, seed: int, how: Scale, folder: Path, first_seed: int, overrides: Sequence[str]
) -> PlannedRun:
    """Plans a run with a seed and its evaluation in a folder of runs; `run.needs` always has the first seed."""
    output = folder / f"{folder_name(run.name)}-{seed}"
    config, own_changes = run.config, run.paper_changes
    if how.small is not None:
        config, own_changes = run.small.get(how.reader, how.small["config"]), run.changes
    arguments = [*changes_of(config, how.changes), *own_changes.split(), f"training.seed={seed}"]
    arguments.append(f"training.output_dir={output}")
    if run.needs is not None:
        arguments.append(f"model.pretrained_language_model={folder / f'{folder_name(run.needs)}-{first_seed}'}")
    arguments += changes_of(config, overrides)
    training_config = load_training_config(config, arguments)
    check_output_folder(training_config, resume=True, overwrite=False)
    scoring = ["evaluate", "--model", str(output), "--data", training_config.data.spec, "--split", how.split]
    if training_config.data.limit is not None:
        scoring += ["--limit", str(training_config.data.limit)]
    scoring += how.options
    if run.name in table.rows:
        if "meteor" in table.metrics:
            with suppress(FileNotFoundError):  # without the extra `eval`
                meteor_folder()
                scoring += ["--metrics", *CaptionMetrics.DEFAULT, "meteor"]
        scoring += ["--output", f"{output}.results"]
    scoring += ["--record", f"{output}.scores.json"]
    return PlannedRun(
        run, seed, output, training_config, (["train", "--config", config, *arguments, "--resume"], scoring)
    )


def folder_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def changes_of(config: str, changes: Sequence[str]) -> list[str]:
    """Returns the changes whose keys exist in a training config; a language model has fewer than a captioner."""
    sections = load_training_config(config).sections()
    known = {f"{section}.{entry.name}" for section, kind in sections.items() for entry in fields(kind)}
    return [text for text in changes if text.startswith("model.") or text.split("=")[0] in known]


def check_overrides(overrides: Sequence[str], table: Table) -> None:
    """Raises a ConfigError for an override of a key that distinguishes the runs of a table."""
    changes = " ".join(f"{run.paper_changes} {run.changes}" for run in table.runs.values()).split()
    row_keys = {text.partition("=")[0] for text in changes} | {"model.pretrained_language_model"}
    for text in overrides:
        section, key, _ = parse_override(text)
        name = f"{section}.{key}"
        if name in OWN_OPTIONS:
            raise ConfigError(f"{name} is set for each run of a table; leave it out, and give {OWN_OPTIONS[name]}.")
        if name in row_keys:
            raise ConfigError(f"{name} distinguishes the rows of this table; leave it out.")


def checksum(rows: Dataset) -> str:
    """Returns a checksum of all columns of rows except images, frames, features and boxes."""
    names = [name for name in rows.column_names if name not in (*ARRAY_COLUMNS, "image", "frames")]
    return short_checksum([rows.with_format(None).select_columns([name])[name][:] for name in sorted(names)])

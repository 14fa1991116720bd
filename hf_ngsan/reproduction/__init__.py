"""Papers' tables: as data in this folder, their trainings, comparisons and records.

```python
find_table("ngsan", "4").rows["SAN"]["cider_d"]  # 128.6
```
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

PAPERS = {file.stem: file for file in sorted(Path(__file__).parent.glob("*.yaml"))}
"""Files of the papers by the names that the command takes."""


class UnknownTableError(ValueError):
    """An unknown paper, table or row; the message lists the known ones."""


@dataclass(frozen=True)
class Run:
    """A model that a table has trained.

    Attributes:
        name: name of the row.
        config: training config of the paper's row.
        changes: changes to the training config of other data that make it this row.
        paper_changes: changes to `config`, where no config is packaged for the row.
        small: training configs of other data, by reader, where they are not those of the paper's other rows.
        needs: name of another run, a language model that is trained before.
        ours: whether the row is not in the paper.
    """

    name: str
    config: str
    changes: str = ""
    paper_changes: str = ""
    small: Mapping[str, str] = field(default_factory=dict)
    needs: str | None = None
    ours: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Attributes:
        paper, number, title: name of the paper's file, number of the table and its subject.
        source: authors and year.
        metrics, compared: names of its scores, and of those that rows are compared by.
        rows: numbers of the paper by row and metric, in the units of the paper.
        runs: the training of each row, and trainings that it needs.
        baselines: the row that each other row is compared with.
        data: `name` of the paper's data and its numbers of rows, `train` and `evaluated`.
        paper_settings, paper_evaluation: changes to the paper's training configs, and options of its evaluations.
        small: `config`, `split` and `settings` of other data, by reader.
    """

    paper: str
    number: str
    title: str
    source: str
    metrics: tuple[str, ...]
    compared: tuple[str, ...]
    rows: Mapping[str, Mapping[str, float]]
    runs: Mapping[str, Run]
    baselines: Mapping[str, str]
    data: Mapping[str, Any]
    paper_settings: str
    paper_evaluation: str
    small: Mapping[str, Mapping[str, str]]


def find_table(paper: str, number: str) -> Table:
    """Returns a table of a paper.

    Raises:
        UnknownTableError: there is no such paper or table.
    """
    if paper not in PAPERS:
        raise UnknownTableError(f"There is no paper {paper!r}; there are {', '.join(PAPERS)}.")
    content = yaml.safe_load(PAPERS[paper].read_text(encoding="utf-8"))
    tables = content["tables"]
    if number not in tables:
        listed = ", ".join(f"{name} ({table['title']})" for name, table in tables.items())
        raise UnknownTableError(f"{paper} has no table {number!r} of trainings; there are {listed}.")
    table = {**content, **tables[number]}
    metrics = tuple(table["metrics"])
    rows = {
        name: {metric: value for metric, value in zip(metrics, numbers, strict=False) if value is not None}
        for name, numbers in table["rows"].items()
    }
    runs = {name: Run(name, **content["rows"][name]) for name in rows}
    runs |= {run.needs: Run(run.needs, **content["rows"][run.needs]) for run in runs.values() if run.needs}
    against = table.get("against", {})
    baselines = {name: against.get(name, table["baseline"]) for name in rows if name != table["baseline"]}
    small = {
        reader: {**settings, "settings": f"{settings.get('settings', '')} {table.get('changes', {}).get(reader, '')}"}
        for reader, settings in table["small"].items()
    }
    return Table(
        paper=paper,
        number=number,
        title=table["title"],
        source=content["paper"],
        metrics=metrics,
        compared=tuple(table.get("compared", metrics[:1])),
        rows=rows,
        runs=runs,
        baselines=baselines,
        data=table["data"],
        paper_settings=table["paper_settings"],
        paper_evaluation=table.get("paper_evaluation", ""),
        small=small,
    )


def select_rows(table: Table, only: list[str] | None) -> list[str]:
    """Returns the names of the rows that `--only` names, in the order of the table, all by default.

    Raises:
        UnknownTableError: the table has no such row.
    """
    if only is None:
        return list(table.rows)
    unknown = [name for name in only if name not in table.rows]
    if unknown:
        raise UnknownTableError(
            f"Table {table.number} of {table.paper} has no row {unknown[0]!r}; there are {'; '.join(table.rows)}."
        )
    return [name for name in table.rows if name in only]

"""Runs a plan, with one process per run, and records, compares and tabulates the results."""

import json
import os
import platform
import queue
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from ..data import extra_scores_of
from ..io.files import write_text_atomically
from ..io.folders import FolderLock
from ..metrics import CiderD
from ..metrics.comparison import compare, holm
from ..metrics.vqa import vqa_accuracy
from ..training.config import ConfigError
from . import Plan, PlannedRun

PROCESS = (
    "import json, sys; from hf_ngsan.io.processes import end_with_parent; end_with_parent(); "
    "from hf_ngsan.cli import main; sys.exit(next(filter(None, map(main, json.loads(sys.argv[1]))), 0))"
)
"""Code that executes the commands of a run in one process, so that torch is imported once; ends with its parent."""
LIBRARIES = ("hf-ngsan", "torch", "transformers", "accelerate", "datasets", "numpy")
NAMES = {
    **{f"bleu_{n}": f"BLEU-{n}" for n in range(1, 5)},
    **{"cider_d": "CIDEr-D", "rouge_l": "ROUGE-L", "meteor": "METEOR", "spice": "SPICE", "bleu": "BLEU"},
    **{f"image_to_text_r{k}": f"captions R@{k}" for k in (1, 5, 10)},
    **{f"text_to_image_r{k}": f"images R@{k}" for k in (1, 5, 10)},
}
IN_PERCENT = {"bleu", "accuracy", *(name for name in NAMES if "_to_" in name)}
"""Scores that already have the unit of the papers; the others are multiplied by 100."""


def reproduce(
    plan: Plan, processes: int | None = 1, minutes: float | None = None, modules: Sequence[str] = ()
) -> tuple[str, dict[str, str]]:
    """Trains and evaluates the unfinished runs of a table, compares all runs, and writes the table.

    Args:
        plan: the plan; the table is also written into its folder, as JSON and Markdown.
        processes: number of parallel runs; `None` trains nothing.
        minutes: time after which no further run starts; `None` = no limit.
        modules: Python modules that each run imports first.

    Returns:
        The table as Markdown, and the errors of failed runs by folder name.
    """
    records, errors = read_records(plan), {}
    if processes is not None:
        message = f"Another reproduction is writing {plan.output}; wait for its end, or choose another --output."
        with FolderLock(plan.output, FileExistsError(message)):
            errors = execute(plan, processes, minutes, modules)
        records = read_records(plan)
    if not records:
        raise ValueError(f"{plan.output} has no finished run: {next(iter(errors.values()), 'train first')}")
    results = results_of(plan, records, errors)
    markdown = as_markdown(results)
    write_text_atomically(plan.output / f"table-{plan.table.number}.json", json.dumps(results, indent=1) + "\n")
    write_text_atomically(plan.output / f"table-{plan.table.number}.md", markdown)
    return markdown, errors


def execute(plan: Plan, processes: int, minutes: float | None = None, modules: Sequence[str] = ()) -> dict[str, str]:
    """Trains and evaluates the unfinished runs; returns the errors of failed runs by folder name."""
    end = None if minutes is None else time.monotonic() + 60 * minutes
    free: queue.Queue[int] = queue.Queue()
    for number in range(processes):
        free.put(number % max(1, torch.accelerator.device_count()))
    running: set[subprocess.Popen] = set()
    errors: dict[str, str] = {}

    def call(planned: PlannedRun) -> None:
        if planned.is_done() or (end is not None and time.monotonic() > end):
            return
        device = free.get()
        try:
            error = run_process(planned, device, running, modules)
        finally:
            free.put(device)
        if error is None:
            write_record(planned, plan)
        else:
            errors[planned.folder.name] = error
        print(f"{planned.run.name}, seed {planned.seed}:", "done" if error is None else f"failed: {error}", flush=True)

    pool = ThreadPoolExecutor(processes)
    try:
        for is_row in (False, True):  # first the runs that rows need
            list(pool.map(call, [planned for planned in plan.runs if (planned.run.name in plan.names) == is_row]))
    finally:  # also after Ctrl-C
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running.copy():
            process.terminate()
    return errors


def run_process(planned: PlannedRun, device: int, running: set[subprocess.Popen], modules: Sequence[str]) -> str | None:
    """Returns the error of a run, or None."""
    commands = [[*(f"--import={module}" for module in modules), *command] for command in planned.commands]
    planned.folder.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    if torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        environment["CUDA_VISIBLE_DEVICES"] = visible[device] if visible[0] else str(device)
    else:
        environment.setdefault("OMP_NUM_THREADS", "1")
    with open(planned.file(".log"), "a", encoding="utf-8") as log:
        program = [sys.executable, "-c", PROCESS, json.dumps(commands)]
        process = subprocess.Popen(program, stdout=log, stderr=log, env=environment)
        running.add(process)
        code = process.wait()
        running.discard(process)
    last = planned.file(".log").read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
    _, is_error, error = last.partition("hf-ngsan: error: ")
    return None if code == 0 else error if is_error else f"it ended with code {code}; see {planned.file('.log')}"


def write_record(planned: PlannedRun, plan: Plan) -> None:
    """Writes the settings, data, scores and environment of a run into a file next to its folder."""
    history = (planned.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
    scores = json.loads(planned.file(".scores.json").read_text(encoding="utf-8"))
    record = {
        "row": planned.run.name,
        "seed": planned.seed,
        "scores": scores["scores"],
        "data": plan.facts,
        "evaluation": scores["fingerprints"],
        "config": planned.config.to_dict(),
        "commit": commit(),
        "versions": {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()},
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine(),
        "training_seconds": round(sum(json.loads(line)["seconds"] for line in history), 1),
    }
    write_text_atomically(planned.file(".record.json"), json.dumps(record, indent=1) + "\n")


def read_records(plan: Plan) -> dict[tuple[str, int], dict]:
    """Returns the records of finished runs by row and seed; raises a ConfigError if data or settings differ."""
    records: dict[tuple[str, int], dict] = {}
    expected: dict[str, Any] = {"data": plan.facts}
    for planned in plan.runs:
        if planned.run.name not in plan.names or not planned.is_done():
            continue
        record = json.loads(planned.file(".record.json").read_text(encoding="utf-8"))
        for key, name in (("data", "data"), ("evaluation", "evaluation settings")):
            other, value = expected.setdefault(key, record[key]), record[key]
            if other != value:
                parts = ", ".join(sorted(part for part in {*other, *value} if other.get(part) != value.get(part)))
                raise ConfigError(f"{planned.folder} has other {name} ({parts}) than the table; give another --output.")
        records[planned.run.name, planned.seed] = record
    return records


def commit() -> str | None:
    """Returns the commit of the package's checkout, with a + if files were changed; None if there is none."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    process = subprocess.run(git, capture_output=True, text=True) if which("git") else None
    return process.stdout.strip() or None if process else None


def item_scores(metric: str, results: Path, rows: Dataset) -> np.ndarray | None:
    """Returns the score of each row `(rows,)` in the unit of the papers; None for a corpus-level score."""
    if metric not in ("cider_d", "accuracy") and "_to_" not in metric:
        return None
    content = json.loads(results.read_text(encoding="utf-8"))
    if metric == "cider_d":
        captions = [entry["caption"] for entry in content]
        scores = CiderD().compute(predictions=captions, references=list(rows["captions"]), per_image=True)
        return 100 * np.array(scores["per_image"]["cider_d"])
    if "_to_" in metric:
        direction, _, k = metric.rpartition("_r")
        right = 100.0 * (np.array(content[direction]) <= int(k))
        if direction == "image_to_text":
            return right
        ends = np.cumsum([len(captions) for captions in rows["captions"]])
        return np.array([part.mean() for part in np.split(right, ends[:-1])])
    answers = [entry["answer"] for entry in content]
    return 100 * np.array([vqa_accuracy(*pair) for pair in zip(answers, rows["answers"], strict=True)])


def results_of(plan: Plan, records: Mapping[tuple[str, int], dict], errors: Mapping[str, str]) -> dict:
    """Returns the table: scores over seeds, the paper's numbers, and comparisons with the rows' baselines."""
    table, extra = plan.table, extra_scores_of(plan.spec)
    metrics = [*table.metrics, *(() if extra is None else extra.names)]
    folders = {(planned.run.name, planned.seed): planned for planned in plan.runs}
    rows: list[dict[str, Any]] = []
    for name in plan.names:
        failed = {str(seed): errors.get(folders[name, seed].folder.name) for seed in plan.seeds}
        seed_records = {seed: records[name, seed]["scores"] for seed in plan.seeds if (name, seed) in records}
        rows.append(
            {
                "name": name,
                "ours": table.runs[name].ours,
                "seeds": list(seed_records),
                "failed": {seed: error for seed, error in failed.items() if error is not None},
                "scores": scores_of_row(metrics, [*seed_records.values()], table.rows[name]),
                "comparisons": {},
            }
        )
    for metric in table.compared:
        items = {key: item_scores(metric, folders[key].file(".results"), plan.rows) for key in records}
        compare_rows(plan, metric, rows, items)
    training = {name: plan.facts[f"training_{name}"] for name in ("rows", "checksum")}
    return {
        "paper": table.source,
        "table": table.number,
        "title": table.title,
        "data": {**{name: plan.facts[name] for name in ("spec", "split", "rows", "checksum")}, "training": training},
        "papers_data": table.data["name"],
        "is_papers_data": plan.is_papers,
        "metrics": [metric for metric in metrics if any(metric in row["scores"] for row in rows)],
        "compared": list(table.compared),
        "rows": rows,
    }


def scores_of_row(metrics: Sequence[str], scores: Sequence[dict], paper: Mapping[str, float]) -> dict[str, dict]:
    """Returns mean and standard deviation over seeds of each common metric, in the unit of the papers."""
    row_scores = {}
    for metric in metrics:
        values = [(1 if metric in IN_PERCENT else 100) * seed_scores.get(metric, np.nan) for seed_scores in scores]
        if values and not np.isnan(values).any():
            mean, papers = statistics.mean(values), paper.get(metric)
            row_scores[metric] = {
                "mean": mean,
                "std": statistics.stdev(values) if len(values) > 1 else None,
                "values": values,
                "paper": papers,
                "difference": None if papers is None else mean - papers,
            }
    return row_scores


def compare_rows(plan: Plan, metric: str, rows: Sequence[dict], items: Mapping[tuple[str, int], Any]) -> None:
    """Adds comparisons of the items' scores `(rows,)`, averaged over the seeds that both models have."""
    table, compared = plan.table, []
    for row in rows:
        if (base := table.baselines.get(row["name"])) is None:
            continue
        pairs: Any = [(items.get((row["name"], seed)), items.get((base, seed))) for seed in plan.seeds]
        differences = [np.subtract(*pair) for pair in pairs if all(scores is not None for scores in pair)]
        if differences:
            comparison = compare(np.mean(differences, axis=0))
            paper_scores: Any = [table.rows[name].get(metric) for name in (row["name"], base)]
            row["comparisons"][metric] = {
                "against": base,
                "seeds": len(differences),
                "difference": comparison.difference,
                "interval": list(comparison.interval),
                "p_value": comparison.p_value,
                "paper": None if None in paper_scores else paper_scores[0] - paper_scores[1],
            }
            compared.append(row["comparisons"][metric])
    for comparison, corrected in zip(compared, holm([entry["p_value"] for entry in compared]), strict=True):
        comparison["p_holm"] = corrected


def as_markdown(results: dict) -> str:
    metrics, compared, data = results["metrics"], results["compared"], results["data"]
    text = f"{data['training']['rows']} rows for training and {data['rows']} of split {data['split']} of {data['spec']}"
    if results["is_papers_data"]:
        text = f"Trained and evaluated on {text}, as in the paper ({results['papers_data']})."
    else:
        text = f"The paper used other data ({results['papers_data']}); here: {text}. Compare effects, not scores."
    titles = ["row", "seeds", *(NAMES.get(metric, metric) for metric in metrics)]
    for metric in compared:
        name = NAMES.get(metric, metric)
        titles += [f"{name} in the paper", "difference", "against", f"effect on {name} (95%)"]
        titles += ["in the paper", "p (Holm)"]
    lines = [f"# Table {results['table']} of {results['paper']}: {results['title']}", "", text, ""]
    lines += [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for row in results["rows"]:
        cells = [row["name"] + (" (not in the paper)" if row["ours"] else ""), str(len(row["seeds"]))]
        for score in map(row["scores"].get, metrics):
            spread = "" if score is None or score["std"] is None else f" ± {score['std']:.1f}"
            cells.append("" if score is None else f"{score['mean']:.1f}{spread}")
        for metric in compared:
            score, comparison = row["scores"].get(metric, {}), row["comparisons"].get(metric)
            cells += [number(score.get("paper"), ""), number(score.get("difference"), "+")]
            if comparison is None:
                cells += [""] * 4
                continue
            low, high = comparison["interval"]
            cells += [comparison["against"], f"{comparison['difference']:+.1f} ({low:+.1f} to {high:+.1f})"]
            cells += [number(comparison["paper"], "+"), f"{comparison['p_holm']:.4f}"]
        lines.append(f"| {' | '.join(cells)} |")
    failed = [(row["name"], *failure) for row in results["rows"] for failure in row["failed"].items()]
    lines += [""] * bool(failed) + [f"- {name}, seed {seed}, failed: {error}" for name, seed, error in failed]
    return "\n".join(lines) + "\n"


def number(value: float | None, sign: str) -> str:
    return "" if value is None else format(value, f"{sign}.1f")

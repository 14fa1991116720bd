"""A table of scores over seeds, the paper's numbers and paired comparisons; as JSON, Markdown, CSV and figure."""

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset

from ..data import extra_scores_of
from ..io.files import write_text_atomically
from ..metrics import CiderD
from ..metrics.comparison import compare, holm
from ..metrics.vqa import vqa_accuracy
from ..visualization.plots import ACCENT, INK, QUIET, new_figure, save_figure
from .plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {
    **{f"bleu_{n}": f"BLEU-{n}" for n in range(1, 5)},
    **{"cider_d": "CIDEr-D", "rouge_l": "ROUGE-L", "meteor": "METEOR", "spice": "SPICE", "bleu": "BLEU"},
    **{f"image_to_text_r{k}": f"captions R@{k}" for k in (1, 5, 10)},
    **{f"text_to_image_r{k}": f"images R@{k}" for k in (1, 5, 10)},
}
IN_PERCENT = {"bleu", "accuracy", *(name for name in NAMES if "_to_" in name)}
"""Scores that commands print in the unit of the papers; the others are multiplied by 100."""


def item_scores(metric: str, results: Path, rows: Dataset) -> np.ndarray | None:
    """Returns the score of each row `(rows,)` in the unit of the papers; None for a score of the corpus as a whole.

    Args:
        metric: name of the score.
        results: file of `hf-ngsan evaluate --output`.
        rows: the evaluated rows.
    """
    if metric not in ("cider_d", "accuracy") and "_to_" not in metric:
        return None
    content = json.loads(results.read_text(encoding="utf-8"))
    if metric == "cider_d":
        captions = [entry["caption"] for entry in content]
        found = CiderD().compute(predictions=captions, references=list(rows["captions"]), per_image=True)
        return 100 * np.array(found["per_image"]["cider_d"])
    if "_to_" in metric:
        direction, _, k = metric.rpartition("_r")
        right = 100.0 * (np.array(content[direction]) <= int(k))
        if direction == "image_to_text":
            return right
        ends = np.cumsum([len(captions) for captions in rows["captions"]])
        return np.array([part.mean() for part in np.split(right, ends[:-1])])
    answers = [entry["answer"] for entry in content]
    return 100 * np.array([vqa_accuracy(answer, own) for answer, own in zip(answers, rows["answers"], strict=True)])


def results_of(plan: Plan, records: Mapping[tuple[str, int], dict], errors: Mapping[str, str]) -> dict:
    """Returns the table: scores over seeds, the paper's numbers, and comparisons with the rows' baselines.

    A comparison resamples rows; scores are means over the seeds that both models have, so that its interval is that of
    these trainings, on other images.
    """
    table = plan.table
    extra = extra_scores_of(plan.spec)
    metrics = [*table.metrics, *(() if extra is None else extra.names)]
    folders = {(planned.run.name, planned.seed): planned for planned in plan.runs}
    items: dict[tuple[str, str, int], np.ndarray | None] = {
        (metric, name, seed): item_scores(metric, folders[name, seed].file(".results"), plan.rows)
        for metric in table.compared
        for name, seed in records
    }
    rows: list[dict[str, Any]] = []
    for name in plan.names:
        seeds = [seed for seed in plan.seeds if (name, seed) in records]
        failed = {
            str(seed): errors[folders[name, seed].folder.name]
            for seed in plan.seeds
            if folders[name, seed].folder.name in errors
        }
        of_seeds = [records[name, seed]["scores"] for seed in seeds]
        rows.append(
            {
                "name": name,
                "ours": table.runs[name].ours,
                "seeds": seeds,
                "failed": failed,
                "scores": summaries(of_seeds, metrics, table.rows[name]),
                "comparisons": {},
            }
        )
    for metric in table.compared:
        compared = []
        for row in rows:
            found = comparison(metric, row["name"], table.baselines.get(row["name"]), plan, items)
            if found is not None:
                row["comparisons"][metric] = found
                compared.append(found)
        for found, corrected in zip(compared, holm([found["p_value"] for found in compared]), strict=True):
            found["p_holm"] = corrected
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


def summaries(
    scores: Sequence[Mapping[str, float]], metrics: Sequence[str], papers: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """Returns mean, deviation and values of each metric in the unit of the papers, beside the paper's number.

    Args:
        scores: scores of a row with each seed; a metric that one of them lacks is left out.
        metrics: names of the metrics.
        papers: the paper's numbers by metric.
    """
    found: dict[str, dict[str, Any]] = {}
    for metric in metrics:
        unit = 1 if metric in IN_PERCENT else 100
        values = [unit * of_seed.get(metric, np.nan) for of_seed in scores]
        if values and not np.isnan(values).any():
            mean, paper = statistics.mean(values), papers.get(metric)
            found[metric] = {
                "mean": mean,
                "std": statistics.stdev(values) if len(values) > 1 else None,
                "values": values,
                "paper": paper,
                "difference": None if paper is None else mean - paper,
            }
    return found


def comparison(
    metric: str, name: str, base: str | None, plan: Plan, items: Mapping[tuple[str, str, int], np.ndarray | None]
) -> dict[str, Any] | None:
    """Returns the comparison of a row with its baseline over their common seeds; None without any."""
    if base is None:
        return None
    pairs = [(items.get((metric, name, seed)), items.get((metric, base, seed))) for seed in plan.seeds]
    differences = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
    if not differences:
        return None
    found = compare(np.mean(differences, axis=0))
    ours, theirs = (plan.table.rows[row].get(metric) for row in (name, base))
    return {
        "against": base,
        "seeds": len(differences),
        "difference": found.difference,
        "interval": list(found.interval),
        "p_value": found.p_value,
        "paper": None if ours is None or theirs is None else ours - theirs,
    }


def write_results(results: dict, output: Path) -> list[Path]:
    """Writes a table as JSON, Markdown, CSV and a figure; returns the files."""
    texts = {"json": json.dumps(results, indent=1) + "\n", "md": as_markdown(results), "csv": as_csv(results)}
    files = [output / f"table-{results['table']}.{suffix}" for suffix in (*texts, "png")]
    for file, text in zip(files, texts.values(), strict=False):
        write_text_atomically(file, text)
    save_figure(plot_results(results), files[-1])
    return files


def as_markdown(results: dict) -> str:
    """Returns the table with a sentence on its data."""
    metrics, compared = results["metrics"], results["compared"]
    titles = ["row", "seeds", *(NAMES.get(metric, metric) for metric in metrics)]
    for metric in compared:
        name = NAMES.get(metric, metric)
        titles += [
            f"{name} in the paper",
            "difference",
            "against",
            f"effect on {name} (95%)",
            "in the paper",
            "p (Holm)",
        ]
    lines = [f"# Table {results['table']} of {results['paper']}: {results['title']}", "", data_sentence(results), ""]
    lines += [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for row in results["rows"]:
        cells = [row["name"] + (" (not in the paper)" if row["ours"] else ""), str(len(row["seeds"]))]
        cells += [spread(row["scores"].get(metric)) for metric in metrics]
        for metric in compared:
            score, found = row["scores"].get(metric, {}), row["comparisons"].get(metric)
            cells += [number(score.get("paper"), ""), number(score.get("difference"), "+")]
            if found is None:
                cells += [""] * 4
                continue
            low, high = found["interval"]
            cells += [found["against"], f"{found['difference']:+.1f} ({low:+.1f} to {high:+.1f})"]
            cells += [number(found["paper"], "+"), f"{found['p_holm']:.4f}"]
        lines.append(f"| {' | '.join(cells)} |")
    failed = [(row["name"], seed, error) for row in results["rows"] for seed, error in row["failed"].items()]
    if failed:
        lines += ["", *(f"- {name}, seed {seed}, failed: {error}" for name, seed, error in failed)]
    return "\n".join(lines) + "\n"


def data_sentence(results: dict) -> str:
    data = results["data"]
    own = f"{data['training']['rows']} rows for training and {data['rows']} of split {data['split']} of {data['spec']}"
    if results["is_papers_data"]:
        return f"Trained and evaluated on {own}: as many as in the paper ({results['papers_data']})."
    return (
        f"These are other data than the paper's ({results['papers_data']}): {own}. Compare effects, not scores, with "
        "the paper's."
    )


def spread(score: dict | None) -> str:
    if score is None:
        return ""
    return f"{score['mean']:.1f}" + ("" if score["std"] is None else f" ± {score['std']:.1f}")


def number(value: float | None, sign: str) -> str:
    return "" if value is None else format(value, f"{sign}.1f")


def as_csv(results: dict) -> str:
    """Returns a line for each row and score."""
    file = io.StringIO()
    columns = ["row", "metric", "seeds", "mean", "std", "paper", "difference", "against", "effect", "low", "high"]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*columns, "effect_in_paper", "p", "p_holm"])
    for row in results["rows"]:
        for metric, score in row["scores"].items():
            found = row["comparisons"].get(metric)
            cells = [row["name"], metric, len(row["seeds"])]
            cells += [score[key] for key in ("mean", "std", "paper", "difference")]
            if found is not None:
                keys = ("paper", "p_value", "p_holm")
                cells += [found["against"], found["difference"], *found["interval"], *(found[key] for key in keys)]
            writer.writerow(cells)
    return file.getvalue()


def plot_results(results: dict) -> "Figure":
    """Draws the first compared score of each row, and its effect against the baseline beside the paper's.

    Raises:
        MissingPlotsError: matplotlib is not installed.
    """
    metric, rows = results["compared"][0], results["rows"]
    figure = new_figure(8.4, 1.4 + 0.34 * len(rows))
    scores, effects = figure.subplots(1, 2, sharey=True)
    for place, row in enumerate(rows):
        score, found = row["scores"].get(metric), row["comparisons"].get(metric)
        if score is not None:
            scores.errorbar(score["mean"], -place, xerr=score["std"] or 0, fmt="o", color=INK, capsize=3)
        if found is not None:
            low, high = found["interval"]
            effects.plot([low, high], [-place, -place], color=INK)
            effects.plot(found["difference"], -place, "o", color=INK)
            if found["paper"] is not None:
                effects.plot(found["paper"], -place, "D", color=ACCENT, fillstyle="none")
    scores.set_yticks([-place for place in range(len(rows))], [row["name"] for row in rows])
    scores.set_ylim(0.5 - len(rows), 0.5)
    scores.set_xlabel(f"{NAMES.get(metric, metric)}: mean and deviation over seeds", fontsize=9)
    effects.axvline(0, color=QUIET, linewidth=0.8)
    effects.set_xlabel("effect with 95% interval (◇ in the paper)", fontsize=9)
    for panel in (scores, effects):
        panel.tick_params(labelsize=8)
    return figure

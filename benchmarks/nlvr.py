"""Effect of geometry on NLVR: MCAN trained on dev and tested on test, and the other way round, several seeds each.

    python benchmarks/nlvr.py --data DIR

DIR has dev/dev.json and test/test.json. The examples of one directory of the training split are held out to choose the
best epoch; directories do not share statements. Prints the accuracy in percent, mean and deviation over seeds, the
accuracy of always giving the more frequent answer of the training split, and the difference from MCAN with its 95%
interval (paired bootstrap over statements with all their pictures, seeds averaged). Finished runs are skipped, and
stopped runs are resumed. Arguments `key=value` after the options change the training config.
"""

import argparse
import json
import os
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
from training_runs import by_variant, call, spread

from hf_ngsan.data import load_data
from hf_ngsan.io.files import write_text_atomically

VARIANTS = {
    "statement alone": (",regions=false", []),
    "MCAN": ("", []),
    "MCAN, positions as features": (",positions=true", []),
    "MCAN + GSA": ("", ["model.geometric_bias=[query]"]),
    "MCAN + GSA signed": ("", ["model.geometric_bias=[query]", "model.geometry_features=signed"]),
}
BASE = "MCAN"
SPLITS = {"dev": "test", "test": "dev"}
"""Training split to test split."""
HELD_OUT = 5
RESAMPLES = 10_000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="with dev/dev.json and test/test.json")
    parser.add_argument("--output", type=Path, default=Path("runs/nlvr_geometry"), metavar="DIR")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, metavar="NAME", help="(all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--limit", type=int, metavar="N", help="test only on the first N examples")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def answers(options: argparse.Namespace, split: str, variant: str, seed: int) -> dict[int, str]:
    """Returns the answers of one run by question id, after training and answering if necessary."""
    run = options.output / f"{split}-{variant.lower().replace(',', '').replace(' ', '-')}-{seed}"
    file, (keys, changes) = run / "test_answers.json", VARIANTS[variant]
    if not file.exists():
        spec = f"nlvr:{options.data}{keys}"
        settings = [f"data.spec={spec}", f"data.train_split={split}-{HELD_OUT}", "training.tracker=null"]
        settings += [f"data.validation_split={split}/{HELD_OUT}", f"training.output_dir={run}", f"training.seed={seed}"]
        call(run, "train", "--config", "mcan/nlvr", *settings, *changes, *options.overrides, "--resume")
        where = ["--data", spec, "--split", SPLITS[split], "--output", file]
        where += [] if options.limit is None else ["--limit", options.limit]
        write_text_atomically(run / "scores.json", call(run, "evaluate", "--model", run / "best", *where))
    score = json.loads((run / "scores.json").read_text())["accuracy"]
    print(f"trained on {split}, {variant}, seed {seed}: {score:.2f}", file=sys.stderr, flush=True)
    return {entry["question_id"]: entry["answer"] for entry in json.loads(file.read_text(encoding="utf-8"))}


def interval(differences: np.ndarray, statements: list[int]) -> tuple[float, float]:
    """Returns the 95% interval of a mean over examples `(examples,)`, resampled by statements."""
    _, places = np.unique(statements, return_inverse=True)
    sums, counts = np.bincount(places, differences), np.bincount(places)
    random = np.random.default_rng(0)
    picks = random.integers(len(sums), size=(RESAMPLES, len(sums)))
    low, high = np.quantile(sums[picks].sum(1) / counts[picks].sum(1), [0.025, 0.975])
    return float(low), float(high)


def table(options: argparse.Namespace, split: str, predictions: dict[str, list[dict[int, str]]]) -> str:
    """Returns the results of training on a split as Markdown."""
    rows = load_data(f"nlvr:{options.data}", SPLITS[split])
    rows = rows.select(range(min(len(rows), options.limit or len(rows))))
    right = dict(zip(rows["question_id"], (answers[0] for answers in rows["answers"]), strict=True))
    training = load_data(f"nlvr:{options.data}", split)
    majority = Counter(answers[0] for answers in training["answers"]).most_common(1)[0][0]
    share = 100 * sum(answer == majority for answer in right.values()) / len(right)
    scores = {
        variant: np.array([[100.0 * (run[key] == answer) for key, answer in right.items()] for run in runs])
        for variant, runs in predictions.items()
    }
    lines = [
        f"| trained on {split} | seeds | accuracy on {SPLITS[split]} | against {BASE} | 95% interval |",
        "| --- | --- | --- | --- | --- |",
        f"| always {majority} | | {share:.4f} | | |",
    ]
    statements = [question_id // 1000 for question_id in right]
    for variant, accuracies in scores.items():
        cells = [variant, str(len(accuracies)), spread(accuracies.mean(1).tolist()), "", ""]
        if variant != BASE and BASE in scores:
            differences = accuracies.mean(0) - scores[BASE].mean(0)
            low, high = interval(differences, statements)
            cells[3:] = [f"{differences.mean():+.2f}", f"{low:+.2f} to {high:+.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = parse_arguments()
    runs = list(product(SPLITS, options.variants))
    results = by_variant(lambda run, seed: answers(options, *run, seed), runs, options.seeds, options.jobs)
    for split in SPLITS:
        print(table(options, split, {name: results[split, name] for name in options.variants}), end="\n\n")


if __name__ == "__main__":
    main()

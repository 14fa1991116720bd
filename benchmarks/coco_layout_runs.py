"""SAN, N-SAN, G-SAN and NG-SAN on COCO layouts, with several seeds each: CIDEr-D on the test split, mean and spread.

    python benchmarks/coco_layout_runs.py --data DIR

DIR holds instances_*.json and captions_*.json. Each run is a process with one CPU thread. A run that is finished is
skipped, one that was stopped is resumed, so the command can be repeated until it prints the table. Keys of the recipe
can be changed behind the options: `training.epochs=1 model.hidden_size=64`.
"""

import argparse
import json
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from training_runs import call, spread

from hf_ngsan.ground.files import write_text_atomically

CONFIG = Path(__file__).parents[1] / "examples" / "configs" / "ngsan" / "coco_layout.yaml"
VARIANTS = {
    "SAN": ["model.query_norm=null", "model.geometric_bias=[]"],
    "N-SAN": ["model.geometric_bias=[]"],
    "G-SAN": ["model.query_norm=null"],
    "NG-SAN": [],
}
PAPER_ORDER = [("SAN", "N-SAN"), ("SAN", "G-SAN"), ("N-SAN", "NG-SAN"), ("G-SAN", "NG-SAN")]
METRICS = {"cider_d": "CIDEr-D", "bleu_4": "BLEU-4", "rouge_l": "ROUGE-L"}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="COCO layouts")
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help="recipe of NG-SAN (coco_layout.yaml)")
    parser.add_argument("--output", type=Path, default=Path("runs/coco_layout"), metavar="DIR", help="(%(default)s)")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, help="(all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the recipe of every run")
    return parser.parse_intermixed_args()


def score(options: argparse.Namespace, variant: str, seed: int) -> dict[str, float]:
    """Returns scores of one run on the test split: read if they are there, else trained for and measured."""
    run = options.output / f"{variant.lower()}-{seed}"
    scores = run / "test_scores.json"
    if not scores.exists():
        data = f"coco-layout:{options.data}"
        settings = [
            f"data.spec={data}",
            f"training.output_dir={run}",
            f"training.seed={seed}",
            "training.num_threads=1",
        ]
        settings += [*VARIANTS[variant], *options.overrides]
        call(run, "train", "--config", options.config, *settings, "--resume")
        captions = run / "test_captions.json"
        output = call(run, "evaluate", "--model", run, "--data", data, "--num-beams", 3, "--output", captions)
        write_text_atomically(scores, output)
    result = json.loads(scores.read_text())
    print(f"{variant} seed {seed}: CIDEr-D {result['cider_d']:.4f}", file=sys.stderr, flush=True)
    return result


def table(scores: dict[str, list[dict[str, float]]]) -> str:
    """Returns mean and sample standard deviation over seeds, as Markdown."""
    lines = [f"| model | seeds | {' | '.join(METRICS.values())} |", f"| --- | --- |{' --- |' * len(METRICS)}"]
    for variant, runs in scores.items():
        cells = [spread([run[metric] for run in runs]) for metric in METRICS]
        lines.append(f"| {variant} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(scores: dict[str, list[dict[str, float]]]) -> str:
    """Returns whether mean CIDEr-D follows the paper's order, and where it does not."""
    means = {variant: statistics.mean(run["cider_d"] for run in runs) for variant, runs in scores.items()}
    broken = [
        f"{better} ({means[better]:.4f}) is not above {worse} ({means[worse]:.4f})"
        for worse, better in PAPER_ORDER
        if {worse, better} <= means.keys() and means[better] <= means[worse]
    ]
    if broken:
        return f"The paper's order (NG-SAN > G-SAN, N-SAN > SAN) does not show: {'; '.join(broken)}."
    return "The paper's order (NG-SAN > G-SAN, N-SAN > SAN) shows in the means."


def main():
    options = parse_arguments()
    # the first seed of every variant comes first, so that an unfinished queue already compares all
    queue = [(variant, seed) for seed in options.seeds for variant in options.variants]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda run: score(options, *run), queue))
    scores = {variant: [] for variant in options.variants}
    for (variant, _), result in zip(queue, results, strict=True):
        scores[variant].append(result)
    print(table(scores))
    print()
    print(verdict(scores))


if __name__ == "__main__":
    main()

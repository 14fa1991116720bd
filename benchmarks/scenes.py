"""Captioners of synthetic scenes, from regions and from pixels, with several seeds each: means and spreads.

    python benchmarks/scenes.py

A seed is that of the scenes and of the weights. Each run is a process with one CPU thread, trained by the demo's
recipe. A run that is finished is skipped, one that was stopped is resumed, so the command can be repeated.
"""

import argparse
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from hf_ngsan.demo.recipes import FROM_PIXELS, VARIANTS, folder_name, scenes_recipe
from hf_ngsan.demo.runs import CHANCE, calm_logs, read_scores, train_and_score

MODELS = [*VARIANTS, FROM_PIXELS]
COLUMNS = {
    "CIDEr-D": ("cider_d", "{:.2f}"),
    "BLEU-4": ("bleu_4", "{:.3f}"),
    "objects %": ("objects", "{:.1f}"),
    "symmetric %": ("symmetric", "{:.1f}"),
    "directional %": ("directional", "{:.1f}"),
    "training s": ("training_seconds", "{:.0f}"),
}
PERCENTAGES = ("objects", "symmetric", "directional")
OF_CHANCE = ("symmetric", "directional")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/scenes"), metavar="DIR", help="(%(default)s)")
    parser.add_argument("--variants", nargs="+", default=MODELS, choices=MODELS, metavar="NAME", help="(all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    return parser.parse_args()


def score(variant: str, seed: int, output: Path) -> dict[str, float]:
    """Returns scores of one run, read if they are there, else trained for and measured."""
    recipe = scenes_recipe(variant, output / f"{folder_name(variant)}-{seed}", seed, {"training": {"num_threads": 1}})
    with calm_logs():
        return read_scores(recipe) or train_and_score(recipe)


def table(scores: dict[str, list[dict[str, float]]]) -> str:
    """Returns mean and sample standard deviation over seeds, as Markdown."""
    lines = [f"| model | seeds | {' | '.join(COLUMNS)} |", f"| --- | --- |{' --- |' * len(COLUMNS)}"]
    for variant, runs in scores.items():
        cells = [
            spread([run[key] * (100 if key in PERCENTAGES else 1) for run in runs], form)
            for key, form in COLUMNS.values()
        ]
        lines.append(f"| {variant} | {len(runs)} | {' | '.join(cells)} |")
    chance = [f"{100 * CHANCE:.1f}" if key in OF_CHANCE else "" for key, _ in COLUMNS.values()]
    return "\n".join([*lines, f"| chance | | {' | '.join(chance)} |"])


def spread(values: list[float], form: str) -> str:
    deviation = f" ± {form.format(statistics.stdev(values))}" if len(values) > 1 else ""
    return form.format(statistics.mean(values)) + deviation


def main():
    options = parse_arguments()
    # the first seed of every variant comes first, so that an unfinished queue already compares all
    queue = [(variant, seed) for seed in options.seeds for variant in options.variants]
    scores = {variant: [] for variant in options.variants}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        runs = [pool.submit(score, variant, seed, options.output) for variant, seed in queue]
        for (variant, seed), run in zip(queue, runs, strict=True):
            scores[variant].append(run.result())
            found = {group: f"{scores[variant][-1][group]:.1%}" for group in PERCENTAGES}
            print(
                f"{variant}, seed {seed}: {', '.join(f'{group} {share}' for group, share in found.items())}", flush=True
            )
    print()
    print(table(scores))


if __name__ == "__main__":
    main()

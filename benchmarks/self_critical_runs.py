"""Gain of self-critical training over cross-entropy on COCO layouts: CIDEr-D on the test split over seeds, and a curve.

    hf-ngsan reproduce ngsan --table 6 --data coco-layout:DIR --only NG-SAN   # the initial captioners, if missing
    python benchmarks/self_critical_runs.py --data DIR

Each run is a process with one CPU thread. Finished runs are skipped, and stopped runs are resumed. Arguments
`key=value` after the options change the config: `self_critical.baseline=greedy`.
"""

import argparse
import json
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from training_runs import call, spread

from hf_ngsan.io.files import write_text_atomically
from hf_ngsan.metrics.diagnostics import caption_diagnostics

START = Path("runs", "reproduce", "ngsan-coco-layout", "runs")
CONFIG = Path(__file__).parents[1] / "examples" / "configs" / "ngsan" / "coco_layout_self_critical.yaml"
GAIN, MOST_BAD_ENDINGS = 0.05, 0.01


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="COCO layouts")
    parser.add_argument("--start", type=Path, default=START, metavar="DIR", help="(%(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/coco_layout_self_critical"), metavar="DIR", help="(%(default)s)"
    )
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help="config (coco_layout_self_critical.yaml)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="figure of the curves (curve.png in the output folder)"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def score(options: argparse.Namespace, seed: int) -> dict[str, dict[str, float]]:
    """Returns test scores before and after self-critical training, which runs if necessary."""
    before, after = options.start / f"ng-san-{seed}", options.output / f"ng-san-{seed}"
    data = f"coco-layout:{options.data}"
    if not (after / "test_scores.json").exists():
        settings = [f"data.spec={data}", f"model.init_from={before}", f"training.output_dir={after}"]
        settings += [f"training.seed={seed}", "training.num_threads=1", *options.overrides]
        call(after, "train", "--config", options.config, *settings, "--resume")
    return {name: measured(run, data) for name, run in (("before", before), ("after", after))}


def measured(run: Path, data: str) -> dict[str, float]:
    """Returns scores of a run on the test split, with the share of bad endings; measured once."""
    scores, captions = run / "test_scores.json", run / "test_captions.json"
    if not (scores.exists() and captions.exists()):
        output = call(run, "evaluate", "--model", run, "--data", data, "--num-beams", 3, "--output", captions)
        write_text_atomically(scores, output)
    texts = [entry["caption"] for entry in json.loads(captions.read_text(encoding="utf-8"))]
    diagnostics = caption_diagnostics(texts)
    return {**json.loads(scores.read_text(encoding="utf-8")), "bad_endings": 100 * diagnostics["bad_endings"]}


def table(results: list[dict]) -> str:
    lines = ["| stage | seeds | CIDEr-D | BLEU-4 | ROUGE-L | bad endings % |", "| --- | --- | --- | --- | --- | --- |"]
    for name, stage in (("cross-entropy", "before"), ("+ self-critical", "after")):
        columns = ("cider_d", "bleu_4", "rouge_l", "bad_endings")
        cells = [spread([result[stage][column] for result in results]) for column in columns]
        lines.append(f"| {name} | {len(results)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw_curves(options: argparse.Namespace, path: Path):
    """Draws validation CIDEr-D by epoch of both stages, and the reward of the samples, with one line per seed."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    for seed in options.seeds:
        folders = [folder / f"ng-san-{seed}" / "history.jsonl" for folder in (options.start, options.output)]
        stages = [[json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] for file in folders]
        first = len(stages[0])
        colour = f"C{options.seeds.index(seed)}"
        epochs = range(1, 1 + sum(map(len, stages)))
        validation = [entry["cider_d"] for stage in stages for entry in stage]
        axes.plot(epochs, validation, colour, label=f"validation, seed {seed}")
        rewards = [entry["reward"] for entry in stages[1]]
        axes.plot(range(first + 1, first + 1 + len(rewards)), rewards, colour, linestyle=":", label="reward of samples")
    axes.axvline(first + 0.5, color="grey", linewidth=0.8)
    axes.set(xlabel="epoch (cross-entropy, then self-critical)", ylabel="CIDEr-D")
    axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main():
    options = parse_arguments()
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda seed: score(options, seed), options.seeds))
    print(table(results))
    gain = statistics.mean(result["after"]["cider_d"] - result["before"]["cider_d"] for result in results)
    bad = statistics.mean(result["after"]["bad_endings"] for result in results) / 100
    print(f"\nCIDEr-D gain {gain:.4f}, required: at least {GAIN}")
    print(f"bad endings {bad:.2%}, required: at most {MOST_BAD_ENDINGS:.0%}")
    path = options.figure or options.output / "curve.png"
    draw_curves(options, path)
    print(f"curves: {path}")


if __name__ == "__main__":
    main()

"""Training and scores of captioners of photographs with a frozen backbone, for several seeds.

    VISION="--backbone efficientnet-lite2 --image-size 352"
    hf-ngsan extract --images images:DIR --split train $VISION --copies 4 --output FEATURES
    hf-ngsan extract --images images:DIR --split validation $VISION --output FEATURES
    python benchmarks/flickr8k_captioner.py --features FEATURES

Prints CIDEr-D on the validation split after cross-entropy and after self-critical training, with three beams. Finished
runs are skipped, and stopped runs are resumed. With --xe, the first stage is taken from earlier runs, to
compare settings of the second stage. flickr8k_backbone.py continues to the packaged captioner.
"""

import argparse
import json
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from training_runs import call, cpu_minutes, spread

from hf_ngsan.io.files import write_text_atomically
from hf_ngsan.metrics.diagnostics import caption_diagnostics

CONFIG = "ngsan/flickr8k"
VISION = {"backbone": "efficientnet-lite2", "image_size": 352}
"""Settings of the feature extraction."""
STAGES = {"xe": "cross-entropy", "best": "+ self-critical"}
"""Folders of a run with the best model of each stage."""
METRICS = {"cider_d": "CIDEr-D", "bleu_4": "BLEU-4", "rouge_l": "ROUGE-L", "bad_endings": "bad endings"}
REQUIRED = {"xe": 0.56, "best": 0.62}
MOST_BAD_ENDINGS, MOST_MINUTES = 0.01, 90


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", required=True, metavar="DIR", help="features from hf-ngsan extract")
    parser.add_argument("--output", type=Path, default=Path("runs/flickr8k"), metavar="DIR", help="(%(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--xe", type=Path, metavar="DIR", help="runs whose first stage is used")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def scores(options: argparse.Namespace, seed: int) -> dict[str, dict[str, float]]:
    """Returns the validation scores of both stages, after training and evaluating it if necessary."""
    run, data = options.output / f"ngsan-{seed}", f"features:{options.features}"
    if not (run / "best_scores.json").exists():
        settings = [f"data.spec={data}", f"training.output_dir={run}", f"training.seed={seed}"]
        if options.xe is not None:
            settings += ["training.stage=scst", f"model.init_from={options.xe / run.name / 'xe'}"]
        call(run, "train", "--config", CONFIG, *settings, "training.num_threads=1", *options.overrides, "--resume")
    first = run if options.xe is None else options.xe / run.name
    return {stage: measured(first if stage == "xe" else run, stage, data) for stage in STAGES}


def measured(run: Path, stage: str, data: str) -> dict[str, float]:
    file, captions = run / f"{stage}_scores.json", run / f"{stage}_captions.json"
    if not file.exists():
        options = ["--data", data, "--split", "validation", "--num-beams", 3, "--output", captions]
        scores = json.loads(call(run, "evaluate", "--model", run / stage, *options))
        texts = [entry["caption"] for entry in json.loads(captions.read_text(encoding="utf-8"))]
        scores["bad_endings"] = caption_diagnostics(texts)["bad_endings"]
        write_text_atomically(file, json.dumps(scores, indent=2) + "\n")
    return json.loads(file.read_text(encoding="utf-8"))


def table(results: dict[int, dict], stages: dict[str, str] = STAGES) -> str:
    """Returns mean and sample standard deviation over seeds, as Markdown."""
    lines = [f"| stage | seeds | {' | '.join(METRICS.values())} |", f"| --- | --- |{' --- |' * len(METRICS)}"]
    for stage, name in stages.items():
        cells = [spread([result[stage][metric] for result in results.values()]) for metric in METRICS]
        lines.append(f"| {name} | {len(results)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = parse_arguments()
    with ThreadPoolExecutor(options.jobs) as pool:
        results = dict(zip(options.seeds, pool.map(lambda seed: scores(options, seed), options.seeds), strict=True))
    print(table(results))
    for stage, least in REQUIRED.items():
        mean = statistics.mean(result[stage]["cider_d"] for result in results.values())
        print(f"\nCIDEr-D of {STAGES[stage].lstrip('+ ')}: {mean:.4f}, required: at least {least}", end="")
    bad = max(result["best"]["bad_endings"] for result in results.values())
    minutes = max(cpu_minutes(options.output / f"ngsan-{seed}") for seed in results)
    print(f"\nbad endings: at most {bad:.2%}, required: at most {MOST_BAD_ENDINGS:.0%}")
    trained = "a training" if options.xe is None else "a second stage"
    print(f"CPU minutes of {trained}: at most {minutes:.0f}, required of both stages: at most {MOST_MINUTES}")


if __name__ == "__main__":
    main()

"""Dual encoders of Flickr8k photographs: recalls of the two text encoders, and effects of heads and diversity.

    hf-ngsan extract --images images:DIR --split train --backbone efficientnet-lite2 --copies 4 --output FEATURES
    hf-ngsan extract --images images:DIR --split validation --backbone efficientnet-lite2 --output FEATURES
    python benchmarks/flickr8k_retrieval.py --features FEATURES

The packaged dual encoder needs features of --image-size 352:

    python benchmarks/flickr8k_retrieval.py --features FEATURES --variants packaged \
        --checkpoint flickr8k_retrieval

Prints recalls on the validation split of the best epoch, mean and deviation over seeds, and for ablations the
difference in recall@1 from the first row with its 95% interval (paired bootstrap over queries, seeds averaged).
"required" are the recalls@1 of published models with other backbones. Finished runs are
skipped, and stopped runs are resumed. Arguments `key=value` after the options change the training config.
"""

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from flickr8k_checkpoint import write_dual_encoder
from training_runs import by_variant, call, cpu_minutes, spread

from hf_ngsan.io.files import write_text_atomically
from hf_ngsan.loading.models import load_model
from hf_ngsan.metrics.comparison import compare
from hf_ngsan.tasks.caption_rows import load_rows, rows_for

SRU, MINILM, PACKAGED = "mhsan/flickr8k_sru", "mhsan/flickr8k_minilm", "mhsan/flickr8k"
VISION = {"backbone": "efficientnet-lite2", "image_size": 352}
"""Settings of the feature extraction for the packaged dual encoder."""
HEADS = "model.num_image_heads={0} model.num_text_heads={0}"
VARIANTS = {
    "SRU, 10 heads": (SRU, ""),
    "SRU, 1 head": (SRU, HEADS.format(1)),
    "SRU, no attention": (SRU, HEADS.format(0)),
    "SRU, no diversity": (SRU, "contrastive.diversity_weight=0.0"),
    "MiniLM, InfoNCE": (MINILM, ""),
    "packaged": (PACKAGED, ""),
    "packaged, one text head": (PACKAGED, "model.num_text_heads=1"),
    "MiniLM, hard negatives": (MINILM, "contrastive.loss=hardest contrastive.margin=0.2"),
}
BASE = "SRU, 10 heads"
DIRECTIONS = ("image_to_text", "text_to_image")
REQUIRED = {"SRU": (18, 12.5), "MiniLM": (30, 21), "packaged": (36, 28)}
MOST_MINUTES = 90


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", required=True, metavar="DIR", help="features from hf-ngsan extract")
    parser.add_argument("--output", type=Path, default=Path("runs/flickr8k_retrieval"), metavar="DIR")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, metavar="NAME", help="(all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("--limit", type=int, metavar="N", help="evaluate only the first N images, to test the script")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="write the best packaged seed's checkpoint there"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def folder_of(options: argparse.Namespace, variant: str, seed: int) -> Path:
    return options.output / f"{variant.lower().replace(',', '').replace(' ', '-')}-{seed}"


def scores(options: argparse.Namespace, variant: str, seed: int) -> dict:
    """Returns the validation scores and ranks of one run, after training and evaluating it if necessary."""
    run = folder_of(options, variant, seed)
    file, ranks = run / "validation_scores.json", run / "validation_ranks.json"
    if not file.exists():
        config, changes = VARIANTS[variant]
        data = f"features:{options.features}"
        settings = [f"data.spec={data}", f"training.output_dir={run}", f"training.seed={seed}"]
        settings += ["training.num_threads=1", "training.tracker=null", *changes.split(), *options.overrides]
        call(run, "train", "--config", config, *settings, "--resume")
        where = ["--data", data, "--split", "validation", "--output", ranks]
        where += [] if options.limit is None else ["--limit", options.limit]
        measured = json.loads(call(run, "evaluate", "--model", run, *where))
        measured["image_head_overlap"] = overlap_of_image_heads(run, data, options.limit)
        write_text_atomically(file, json.dumps(measured, indent=1))
    result = json.loads(file.read_text())
    recalls = " | ".join(f"{result['all'][f'{direction}_r1']:.1f}" for direction in DIRECTIONS)
    print(f"{variant}, seed {seed}: recall@1 {recalls}", file=sys.stderr, flush=True)
    return {**result, "ranks": json.loads(ranks.read_text())}


def overlap_of_image_heads(run: Path, data: str, limit: int | None) -> float | None:
    """Returns the mean cosine of the maps of two image heads over validation images, or `None` without two heads."""
    model, processor = load_model(str(run), "retrieval")
    if model.config.num_image_heads < 2:
        return None
    overlaps = []
    for row in rows_for(model, processor, load_rows(data, "validation", limit=limit), data):
        with torch.inference_mode():
            images = model.get_image_features(**processor(visual_features=[row["visual_features"]]))
        maps = images.attentions[-1][0].numpy()
        unit = maps / np.linalg.norm(maps, axis=1, keepdims=True)
        overlaps.append(((unit @ unit.T).sum() - len(maps)) / (len(maps) * (len(maps) - 1)))
    return float(np.mean(overlaps))


def found_first(results: list[dict], direction: str) -> np.ndarray:
    """Returns for each query the percentage of seeds for which the right answer is first."""
    return 100 * np.mean([np.array(result["ranks"][direction]) == 1 for result in results], axis=0)


def difference(results: list[dict], base: list[dict], direction: str) -> str:
    differences = found_first(results, direction) - found_first(base, direction)
    low, high = compare(differences).interval
    return f"{differences.mean():+.1f} ({low:+.1f} to {high:+.1f})"


def row(variant: str, results: list[dict], base: list[dict] | None) -> str:
    """Returns a line of the table."""
    names = [f"{direction}_r{k}" for direction in DIRECTIONS for k in (1, 5, 10)]
    cells = [variant, str(len(results)), *(spread([run["all"][name] for run in results]) for name in [*names, "rsum"])]
    overlaps = [run["image_head_overlap"] for run in results]
    cells.append("" if None in overlaps else spread(overlaps))
    cells += ["", ""] if base is None else [difference(results, base, direction) for direction in DIRECTIONS]
    return f"| {' | '.join(cells)} |"


def recall_table(recalls: dict[int, dict]) -> str:
    """Returns mean and sample standard deviation of the recalls over seeds, as Markdown."""
    lines = ["| direction | seeds | R@1 | R@5 | R@10 |", "| --- | --- | --- | --- | --- |"]
    for direction, words in zip(DIRECTIONS, ("captions for an image", "images for a caption"), strict=True):
        cells = [spread([recall[f"{direction}_r{k}"] for recall in recalls.values()]) for k in (1, 5, 10)]
        lines.append(f"| {words} | {len(recalls)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = parse_arguments()
    results = by_variant(partial(scores, options), options.variants, options.seeds, options.jobs)
    recalls = [f"{'text' if name == DIRECTIONS[0] else 'image'} R@{k}" for name in DIRECTIONS for k in (1, 5, 10)]
    against = [f"{name} R@1 against {BASE}" for name in ("text", "image")]
    titles = ["model", "seeds", *recalls, "rsum", "overlap of image heads", *against]
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}")
    for variant, runs in results.items():
        print(row(variant, runs, None if variant == BASE else results.get(BASE)))
    for kind, required in REQUIRED.items():
        chosen = {name: runs for name, runs in results.items() if name.startswith(kind)}
        for direction, least in zip(DIRECTIONS, required, strict=True):
            means = {name: np.mean([item["all"][f"{direction}_r1"] for item in runs]) for name, runs in chosen.items()}
            if means:
                best = max(means, key=means.__getitem__)
                print(f"\n{kind}, {direction} recall@1: {means[best]:.1f} ({best}), required: at least {least}", end="")
    minutes = max(cpu_minutes(folder_of(options, name, seed)) for name in options.variants for seed in options.seeds)
    print(f"\nCPU minutes of a training: at most {minutes:.0f}, required: at most {MOST_MINUTES}")
    if options.checkpoint is not None:
        recalls = {seed: item["all"] for seed, item in zip(options.seeds, results["packaged"], strict=True)}
        best = max(recalls, key=lambda seed: recalls[seed]["rsum"])
        run = folder_of(options, "packaged", best)
        write_dual_encoder(run, options.checkpoint, VISION, best, recalls, recall_table(recalls))


if __name__ == "__main__":
    main()

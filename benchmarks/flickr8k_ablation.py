"""Which geometry helps on photographs: captioners of Flickr8k's grids, trained alike, several seeds each.

    hf-ngsan extract --images images:DIR --split train --backbone efficientnet-lite0 --output FEATURES
    hf-ngsan extract --images images:DIR --split validation --backbone efficientnet-lite0 --output FEATURES
    python benchmarks/flickr8k_ablation.py --features FEATURES

Prints CIDEr-D on the validation split after the last epoch (no epoch is chosen by it), mean and deviation over seeds,
and the difference from SAN with its 95% interval: images are resampled (paired bootstrap), seeds averaged. A run that
is finished is skipped, one that was stopped is resumed. Keys of the training config can be changed behind the options.
"""

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
from training_runs import by_variant, call, spread

from hf_ngsan.data import load_data
from hf_ngsan.ground.files import write_text_atomically
from hf_ngsan.metrics import CiderD

NO_NORM, NO_BIAS = "model.query_norm=null", "model.geometric_bias=[]"
VARIANTS = {
    "SAN": ("ngsan/flickr8k", [NO_NORM, NO_BIAS]),
    "N-SAN": ("ngsan/flickr8k", [NO_BIAS]),
    "G-SAN": ("ngsan/flickr8k", [NO_NORM]),
    "NG-SAN": ("ngsan/flickr8k", []),
    "NG-SAN signed": ("ngsan/flickr8k", ["model.geometry_features=signed"]),
    "SAN absolute": ("ngsan/flickr8k", [NO_NORM, NO_BIAS, "model.absolute_geometry=true"]),
    "spatial captioner": ("spatial_captioner/flickr8k", []),
}
BASE = "SAN"
EPOCHS = 4
BRIEF = [
    "training.stage=xe",
    f"training.epochs={EPOCHS}",
    "data.validation_split=null",
    "data.captions_per_image=3",
    "augmentation.feature_copies=false",
    "training.num_threads=1",
    "training.tracker=null",
]
RESAMPLES = 10_000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", required=True, metavar="DIR", help="that hf-ngsan extract wrote")
    parser.add_argument("--output", type=Path, default=Path("runs/flickr8k_ablation"), metavar="DIR")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, help="(all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def captions(options: argparse.Namespace, variant: str, seed: int) -> list[dict]:
    """Returns the captions of one run: read if they are there, else trained for and generated."""
    run = options.output / f"{variant.lower().replace(' ', '-')}-{seed}"
    file = run / "validation_captions.json"
    if not file.exists():
        config, changes = VARIANTS[variant]
        data = f"features:{options.features}"
        settings = [f"data.spec={data}", f"training.output_dir={run}", f"training.seed={seed}"]
        call(run, "train", "--config", config, *settings, *BRIEF, *changes, *options.overrides, "--resume")
        where = ["--data", data, "--split", "validation", "--num-beams", 3, "--output", file]
        write_text_atomically(run / "scores.json", call(run, "evaluate", "--model", run / "last", *where))
    score = json.loads((run / "scores.json").read_text())["cider_d"]
    print(f"{variant} seed {seed}: CIDEr-D {score:.4f}", file=sys.stderr, flush=True)
    return json.loads(file.read_text(encoding="utf-8"))


def scores_of_images(found: list[dict], references: dict[int, list[str]]) -> np.ndarray:
    """Returns the CIDEr-D of each image's caption, in the order of the references."""
    texts = {entry["image_id"]: entry["caption"] for entry in found}
    predictions = [texts[image_id] for image_id in references]
    result = CiderD().compute(predictions=predictions, references=list(references.values()), per_image=True)
    return np.array(result["per_image"]["cider_d"])


def interval(differences: np.ndarray) -> tuple[float, float]:
    """Returns the 95% interval of a mean over images `(images,)` by bootstrap."""
    random = np.random.default_rng(0)
    picks = random.integers(len(differences), size=(RESAMPLES, len(differences)))
    low, high = np.quantile(differences[picks].mean(1), [0.025, 0.975])
    return float(low), float(high)


def row(variant: str, scores: np.ndarray, base: np.ndarray | None) -> str:
    """Returns a line of the table; scores are `(seeds, images)`."""
    cells = [variant, str(len(scores)), spread(scores.mean(1).tolist())]
    if base is None:
        return f"| {' | '.join([*cells, '', ''])} |"
    difference = scores.mean(0) - base.mean(0)
    low, high = interval(difference)
    return f"| {' | '.join([*cells, f'{difference.mean():+.4f}', f'{low:+.4f} to {high:+.4f}'])} |"


def main() -> None:
    options = parse_arguments()
    found = by_variant(partial(captions, options), options.variants, options.seeds, options.jobs)
    rows = load_data(f"features:{options.features}", "validation").select_columns(["image_id", "captions"])
    references = dict(zip(rows["image_id"], rows["captions"], strict=True))
    scores = {
        variant: np.stack([scores_of_images(entries, references) for entries in of_seeds])
        for variant, of_seeds in found.items()
    }
    print(f"| model | seeds | CIDEr-D | against {BASE} | 95% interval |\n| --- | --- | --- | --- | --- |")
    for variant, of_variant in scores.items():
        print(row(variant, of_variant, None if variant == BASE else scores.get(BASE)))


if __name__ == "__main__":
    main()

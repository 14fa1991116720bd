"""Compares the steps of training `ngsan-photos` over seeds, by cross-entropy with a frozen backbone.

    mkdir flickr8k && git archive 2b276a6b checkpoints/ngsan-photos | tar -x --strip-components 2 -C flickr8k
    for split in validation train; do
        hf-ngsan extract --images images:photos --split $split --backbone flickr8k --engine onnx --output features
    done
    hf-ngsan extract --images unlabelled --backbone flickr8k --engine onnx --output unlabelled_features
    BASE="--start flickr8k_captioner --features features --data general_photos"
    python benchmarks/photos_steps.py $BASE --variants mixture --seeds 0
    python benchmarks/photos_detections.py --model runs/photos_steps/mixture-0/last --features unlabelled_features \\
        --detections more.json --known features --known-detections detections/*.json --output described
    python benchmarks/photos_steps.py $BASE --described described

All runs start from the same captioner, that of Flickr8k with the words of all photographs (see `photos_captioner.py`).
Its backbone extracts the features. They train on Flickr8k alone, on the mixture of `photos_data.py`, or on the mixture
with described photographs. Their captions are by the first run on the mixture, searched under the constraint that they
name detected objects (`photos_detections.py`). Prints CIDEr-D with three beams on the validation photographs of
Flickr8k and of Pascal-1K, the number of captions of Pascal-1K that name the object, and the paired differences.
Finished runs are skipped.
"""

import argparse
import json
import os
from copy import deepcopy
from functools import partial
from pathlib import Path

from photos_captioner import CAPTIONS, copy_words, is_pascal, measured, tokenizer_of
from photos_kinds import PATTERNS
from training_runs import by_variant, call, spread

from hf_ngsan.data import load_data
from hf_ngsan.data.images.sources import open_split
from hf_ngsan.io.files import write_text_atomically
from hf_ngsan.loading.models import load_model, save_model

SETTINGS = [
    "data.validation_split=null",
    "data.new_words=null",
    "augmentation.feature_copies=false",
    "training.stage=xe",
    "training.batch_size=40",
    "training.learning_rate=4e-4",
    "training.warmup_epochs=0",
    "training.ema_decay=0.99",
    "training.num_threads=1",
    "training.tracker=null",
]
EPOCHS = {"flickr8k": 3, "mixture": 2, "described": 2}  # 18,000, 20,128 and about 25,000 photographs
NAMES = {"flickr8k": "Flickr8k alone", "mixture": "mixture", "described": "mixture and described photographs"}
DIGITS = {"flickr8k": 3, "pascal1k": 3, "named": 1}
COMPARED = (("flickr8k", "mixture"), ("mixture", "described"))
LAST = "last"
"""Folder of the captioner after the last epoch. None is chosen by its scores, which begin above those of the runs."""
FLICKR8K_ROWS = 6000  # the first rows of the mixture


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", required=True, metavar="DIR", help="a captioner with a vision encoder")
    parser.add_argument("--features", required=True, metavar="DIR", help="features of the mixture by its backbone")
    parser.add_argument("--described", metavar="DIR", help="the folder written by photos_detections.py")
    parser.add_argument("--data", required=True, metavar="SOURCE", help="Pascal-1K, with the column category")
    parser.add_argument("--output", type=Path, default=Path("runs/photos_steps"), metavar="DIR", help="(%(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--variants", nargs="+", choices=EPOCHS, default=list(EPOCHS), help="(all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    options = parser.parse_args()
    if "described" in options.variants and options.described is None:
        parser.error("the variant described needs --described")
    return options


def make_start(options: argparse.Namespace) -> Path:
    """Writes the initial captioner of all runs, with the vocabulary of all photographs."""
    folder = options.output / "start" / LAST
    if not folder.exists():
        captioner, processor = load_model(options.start, "captioning")
        tokenizer, model = tokenizer_of(options.features), deepcopy(captioner)
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        copy_words(captioner, processor.tokenizer, model, tokenizer)
        save_model(model, type(processor)(processor.image_processor, tokenizer), folder)
    return folder


def scores(options: argparse.Namespace, run: Path) -> dict[str, float]:
    """Returns CIDEr-D on both validation sets, and how many captions of Pascal-1K name the object."""
    result = measured(options.features, run, LAST)
    kinds = open_split(options.data, "validation")[0].select_columns(["file_name", "category"])
    kind_of = dict(zip(kinds["file_name"], kinds["category"], strict=True))
    rows = load_data(f"features:{options.features}", "validation")
    name_of = dict(zip(rows["image_id"], rows["file_name"], strict=True))
    captions = {name_of[entry["image_id"]]: entry["caption"] for entry in json.loads((run / CAPTIONS).read_text())}
    named = [bool(PATTERNS[kind_of[name]].search(text)) for name, text in captions.items() if is_pascal(name)]
    return {**result, "named": sum(named)}


def trained(options: argparse.Namespace, start: Path, variant: str, seed: int) -> dict[str, float]:
    run = options.output / f"{variant}-{seed}"
    if not (run / LAST / "config.json").exists():
        features = options.described if variant == "described" else options.features
        changes = [f"data.spec=features:{features}", f"model.init_from={start}", f"training.output_dir={run}"]
        changes += [f"training.seed={seed}", f"training.epochs={EPOCHS[variant]}"]
        changes += [f"data.limit={FLICKR8K_ROWS}"] * (variant == "flickr8k")
        call(run, "train", "--config", "ngsan/flickr8k", *SETTINGS, *changes, "--resume")
    return scores(options, run)


def row(name: str, seeds: str, seed_results: list[dict[str, float]]) -> str:
    cells = [spread([scores[score] for scores in seed_results], digits) for score, digits in DIGITS.items()]
    return f"| {name} | {seeds} | {' | '.join(cells)} |"


def main() -> None:
    options = parse_arguments()
    folder = make_start(options)
    start = scores(options, folder.parent)
    runs = partial(trained, options, folder)
    results = by_variant(runs, options.variants, options.seeds, options.jobs)
    lines = ["| trained on | seeds | Flickr8k | Pascal-1K | object named |", "| --- | --- | --- | --- | --- |"]
    lines.append(row("nothing more", "", [start]))
    lines += [row(NAMES[variant], str(len(seed_results)), seed_results) for variant, seed_results in results.items()]
    for first, second in COMPARED:
        if first in results and second in results:
            pairs = list(zip(results[first], results[second], strict=True))
            differences = [{name: after[name] - before[name] for name in start} for before, after in pairs]
            lines.append(row(f"{NAMES[second]}, less {NAMES[first]}", f"{len(pairs)} pairs", differences))
    table = "\n".join(lines)
    write_text_atomically(options.output / "steps.md", table + "\n")
    print(table)


if __name__ == "__main__":
    main()

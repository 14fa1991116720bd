"""Causes of the low score of RSTNet's adaptive attention (AA) on Flickr8k: captioners with one suspect removed each.

    hf-ngsan extract --images images:DIR --split train --backbone efficientnet-lite0 --output FEATURES
    hf-ngsan extract --images images:DIR --split validation --backbone efficientnet-lite0 --output FEATURES
    python benchmarks/rstnet_adaptive_attention.py --features FEATURES

Each row compares a captioner with AA to the captioner without it that has the same layers, images and epochs, trained
as in rstnet_flickr8k.py: CIDEr-D on the validation split after the last epoch, with three beams, and the 95% interval
of the difference (paired bootstrap over images, seeds averaged). In the rows of halves, the captioner is trained on the
first half of the photographs, and its language model on the captions of the same half or of the other half, so that the
latter is not trained on the captions of the captioner. Also prints the weight of the language signal in the captions,
the number of different captions, and the perplexity of the language models. Finished runs are skipped, and stopped runs
are resumed. Arguments `key=value` after the options change the training configs: `training.epochs=1 data.limit=50`.
"""

import argparse
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from datasets import DatasetDict
from rstnet_flickr8k import (
    BRIEF,
    NO_GEOMETRY,
    NO_LANGUAGE,
    captions,
    perplexity,
    row,
    scores_of_seeds,
    train_language_model,
    validation_captions,
    visualness,
)
from training_runs import by_variant

from hf_ngsan.data import load_data

FIRST, SECOND = ["data.train_split=first"], ["data.train_split=second"]
RELEASED = ["model.language_attention=bidirectional", "model.language_tokenization=caption_ids"]
LONG = ["training.epochs=10"]
THREE = ["model.plain_decoder_layers=3"]
UNTRAINED = ["training.epochs=1", "training.learning_rate=0"]
LANGUAGE_MODELS = {
    "all captions": [],
    "untrained": UNTRAINED,
    "leaking": RELEASED,
    "first half": FIRST,
    "second half": SECOND,
}
"""Settings of their training."""


@dataclass(frozen=True)
class Suspect:
    """A captioner with AA and the captioner that it is compared with.

    Attributes:
        base: name of the captioner without AA.
        language_model: name of its language model.
        changes: settings of its training.
    """

    base: str
    language_model: str
    changes: tuple[str, ...] = ()


BASES = {
    "base": NO_LANGUAGE,
    "base, three layers": [NO_LANGUAGE[0], *THREE],
    "base, half the photographs": [*NO_LANGUAGE, *FIRST],
    "base, 10 epochs": [*NO_LANGUAGE, *LONG],
}
SUSPECTS = {
    "+AA": Suspect("base", "all captions"),
    "the adaptive layer is a third one": Suspect(
        "base, three layers", "all captions", ("model.plain_decoder_layers=2",)
    ),
    "the language model is not trained": Suspect("base", "untrained"),
    "the language model of the release, which sees later words": Suspect("base", "leaking", tuple(RELEASED)),
    "half the photographs, language model of these": Suspect("base, half the photographs", "first half", tuple(FIRST)),
    "half the photographs, language model of the others": Suspect(
        "base, half the photographs", "second half", tuple(FIRST)
    ),
    "half of the words do not see the language signal": Suspect(
        "base", "all captions", ("model.language_signal_dropout=0.5",)
    ),
    "10 epochs": Suspect("base, 10 epochs", "all captions", tuple(LONG)),
}
PAIRS = (
    ("half of the words do not see the language signal", "+AA"),
    ("half the photographs, language model of these", "half the photographs, language model of the others"),
)
"""Captioners with AA that are also compared with each other."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", required=True, metavar="DIR", help="features from hf-ngsan extract")
    parser.add_argument("--output", type=Path, default=Path("runs/adaptive_attention"), metavar="DIR")
    parser.add_argument("--rows", nargs="+", default=list(SUSPECTS), choices=SUSPECTS, metavar="ROW", help="(all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def with_halves(features: str, output: Path) -> str:
    """Returns the spec of features with the splits train, validation, first and second (halves of train)."""
    folder = output / "features"
    if not (folder / "dataset_dict.json").exists():
        train, validation = (load_data(f"features:{features}", split) for split in ("train", "validation"))
        half = len(train) // 2
        halves = {"first": train.select(range(half)), "second": train.select(range(half, len(train)))}
        DatasetDict({"train": train, "validation": validation, **halves}).save_to_disk(folder)
    return f"features:{folder}"


def main() -> None:
    options = parse_arguments()
    output, data = options.output, with_halves(options.features, options.output)
    rows = {name: SUSPECTS[name] for name in options.rows}
    bases = dict.fromkeys(suspect.base for suspect in rows.values())
    names = list(dict.fromkeys(suspect.language_model for suspect in rows.values()))

    def run(name: str, seed: int) -> list[dict]:
        suspect = rows.get(name)
        changes = list(BASES[name]) if suspect is None else list(suspect.changes)
        if suspect is not None:
            changes.append(f"model.pretrained_language_model={folders[suspect.language_model]}")
        return captions(output, name, data, [*BRIEF, *NO_GEOMETRY, *changes, *options.overrides], seed)

    with ThreadPoolExecutor(options.jobs) as pool:
        trained = pool.map(
            lambda name: train_language_model(output, name, data, [*LANGUAGE_MODELS[name], *options.overrides]), names
        )
        folders = dict(zip(names, trained, strict=True))
    results = by_variant(run, [*bases, *rows], options.seeds, options.jobs)
    references = validation_captions(data)
    scores = {name: scores_of_seeds(runs, references) for name, runs in results.items()}
    print("| captioner | seeds | CIDEr-D | against its base | 95% interval | different captions | language signal |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, runs in results.items():
        base = rows[name].base if name in rows else None
        different = statistics.mean(len({entry["caption"] for entry in entries}) for entries in runs)
        weight = ""
        if base is not None:
            words = [value for seed in options.seeds for value in visualness(output, name, data, seed).values()]
            weight = f"{1 - sum(mean * count for mean, count in words) / sum(count for _, count in words):.2f}"
        line = row(name, scores[name], None if base is None else scores[base]).removesuffix("|")
        print(f"{line}| {different:.0f} | {weight} |")
    for first, second in PAIRS:
        if first in rows and second in rows:
            print(f"{row(f'{first}, against {second}', scores[first], scores[second])} | |")
    print("\n| language model | perplexity, first half | second half | validation |\n| --- | --- | --- | --- |")
    for name, folder in folders.items():
        values = [f"{perplexity(folder, data, split):.1f}" for split in ("first", "second", "validation")]
        print(f"| {name} | {' | '.join(values)} |")


if __name__ == "__main__":
    main()

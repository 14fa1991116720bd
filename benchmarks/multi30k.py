"""Translation with and without normalized self-attention in the encoder: Multi30k, English to German.

    python benchmarks/multi30k.py --data DIR
    python benchmarks/multi30k.py --data DIR --seeds 0 --variants Transformer --jobs 1

DIR has train.en, train.de, val.en, val.de, test_2016_flickr.en and test_2016_flickr.de. Each run is trained with
the config nsa_transformer/multi30k and one CPU thread, and the model of the last epoch translates the test set. Prints
SacreBLEU and chrF, mean and deviation over seeds, the CPU time of a run's training, and the difference in BLEU from the
Transformer with its 95% interval (paired bootstrap over sentences, seeds averaged). Finished runs are
skipped, and stopped runs are resumed. Arguments `key=value` after the options change the training config.
"""

import argparse
import json
import os
import statistics
import sys
from functools import partial
from pathlib import Path

import numpy as np
from sacrebleu.metrics import BLEU
from training_runs import by_variant, call, cpu_minutes, spread

from hf_ngsan.data import load_data
from hf_ngsan.io.files import write_text_atomically

VARIANTS = {"Transformer": ["model.query_norm=null"], "NSA": []}
BASE = "Transformer"
RESAMPLES = 1_000
REQUIRED = 32.0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of the text files")
    parser.add_argument("--languages", nargs=2, default=["en", "de"], metavar=("SOURCE", "TARGET"), help="(en de)")
    parser.add_argument("--split", default="test_2016_flickr", help="test set (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("runs/multi30k"), metavar="DIR")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, help="(all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def spec_of(options: argparse.Namespace) -> str:
    source, target = options.languages
    return f"parallel:{options.data},source={source},target={target}"


def run_folder(options: argparse.Namespace, variant: str, seed: int) -> Path:
    return options.output / f"{variant.lower()}-{seed}"


def translations(options: argparse.Namespace, variant: str, seed: int) -> list[str]:
    """Returns the translations of one run, after training and generating them if necessary."""
    run = run_folder(options, variant, seed)
    file = run / f"{options.split}.txt"
    if not file.exists():
        settings = [f"data.spec={spec_of(options)}", f"training.output_dir={run}", f"training.seed={seed}"]
        settings += ["training.num_threads=1", "training.tracker=null", *VARIANTS[variant], *options.overrides]
        call(run, "train", "--config", "nsa_transformer/multi30k", *settings, "--resume")
        where = ["--data", spec_of(options), "--split", options.split, "--output", file]
        write_text_atomically(run / f"{options.split}.json", call(run, "evaluate", "--model", run / "last", *where))
    scores = scores_of(options, variant, seed)
    print(f"{variant} seed {seed}: BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f}", file=sys.stderr, flush=True)
    return file.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def scores_of(options: argparse.Namespace, variant: str, seed: int) -> dict:
    return json.loads((run_folder(options, variant, seed) / f"{options.split}.json").read_text(encoding="utf-8"))


def statistics_of(texts: list[str], references: list[str]) -> np.ndarray:
    """Returns the statistics of sentences for BLEU, `(sentences, 10)`: 4 matches, 4 n-grams, lengths of both texts."""
    metric = BLEU(effective_order=True)  # changes only sentence scores, not the statistics
    rows = [metric.sentence_score(text, [reference]) for text, reference in zip(texts, references, strict=True)]
    return np.array([[*row.counts, *row.totals, row.sys_len, row.ref_len] for row in rows])


def bleu_of(sums: np.ndarray) -> float:
    """Returns the BLEU of a corpus, from 0 to 100, from the sums `(10,)` of the statistics of its sentences."""
    values = sums.astype(int).tolist()
    return BLEU.compute_bleu(values[:4], values[4:8], values[8], values[9]).score


def interval(ours: np.ndarray, base: np.ndarray) -> tuple[float, float]:
    """Returns the 95% interval of a difference in BLEU; statistics are `(seeds, sentences, 10)`."""
    random = np.random.default_rng(0)
    differences = []
    for picks in random.integers(ours.shape[1], size=(RESAMPLES, ours.shape[1])):
        means = [statistics.mean(bleu_of(seed[picks].sum(0)) for seed in system) for system in (ours, base)]
        differences.append(means[0] - means[1])
    low, high = np.quantile(differences, [0.025, 0.975])
    return float(low), float(high)


def row(options: argparse.Namespace, variant: str, counts: dict[str, np.ndarray]) -> str:
    scores = [scores_of(options, variant, seed) for seed in options.seeds]
    minutes = statistics.mean(cpu_minutes(run_folder(options, variant, seed)) for seed in options.seeds)
    cells = [variant, str(len(scores)), *(spread([score[name] for score in scores]) for name in ("bleu", "chrf"))]
    cells.append(f"{minutes:.0f}")
    if variant == BASE or BASE not in counts:
        return f"| {' | '.join([*cells, '', ''])} |"
    low, high = interval(counts[variant], counts[BASE])
    difference = statistics.mean(bleu_of(seed.sum(0)) for seed in counts[variant])
    difference -= statistics.mean(bleu_of(seed.sum(0)) for seed in counts[BASE])
    return f"| {' | '.join([*cells, f'{difference:+.2f}', f'{low:+.2f} to {high:+.2f}'])} |"


def main() -> None:
    options = parse_arguments()
    texts = by_variant(partial(translations, options), options.variants, options.seeds, options.jobs)
    references = load_data(spec_of(options), options.split)["target"][:]
    counts = {variant: np.stack([statistics_of(text, references) for text in runs]) for variant, runs in texts.items()}
    signature = scores_of(options, options.variants[0], options.seeds[0])["signatures"]["bleu"]
    print(f"SacreBLEU, {signature}; required of {BASE}: at least {REQUIRED}")
    print(f"| model | seeds | BLEU | chrF | CPU minutes of training | BLEU against {BASE} | 95% interval |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for variant in options.variants:
        print(row(options, variant, counts))


if __name__ == "__main__":
    main()

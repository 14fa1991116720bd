"""Effect of the end token in self-critical rewards on scores: both settings on COCO layouts, several seeds each.

    hf-ngsan reproduce ngsan --table 6 --data coco-layout:DIR --only NG-SAN   # the initial captioners, if missing
    python benchmarks/end_token.py --data DIR

The trainings differ only in `self_critical.end_token_in_reward`: whether the reward and its document frequencies
include the end token ("SacreEOS", Hu et al. 2023). Scores are for the test split without end tokens, as in the official
evaluation. Finished runs are skipped, and stopped runs are
resumed. Arguments `key=value` after the options change the training config.
"""

import argparse
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from self_critical_runs import CONFIG, START, score
from training_runs import spread

MODES = {"with": "true", "without": "false"}
METRICS = {"cider_d": "CIDEr-D", "bleu_4": "BLEU-4", "rouge_l": "ROUGE-L", "bad_endings": "bad endings %"}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="COCO layouts")
    parser.add_argument("--start", type=Path, default=START, metavar="DIR", help="(%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("runs/end_token"), metavar="DIR", help="(%(default)s)")
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help="(coco_layout_self_critical.yaml)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def score_of_mode(options: argparse.Namespace, mode: str, seed: int) -> dict[str, float]:
    """Returns the test scores of a run, after training and evaluating it if necessary."""
    overrides = [f"self_critical.end_token_in_reward={MODES[mode]}", *options.overrides]
    settings = {**vars(options), "output": options.output / mode, "overrides": overrides}
    return score(argparse.Namespace(**settings), seed)["after"]


def main() -> None:
    options = parse_arguments()
    queue = [(mode, seed) for seed in options.seeds for mode in MODES]
    with ThreadPoolExecutor(options.jobs) as pool:
        scores = dict(zip(queue, pool.map(lambda run: score_of_mode(options, *run), queue), strict=True))
    print(f"| end token in the reward | seeds | {' | '.join(METRICS.values())} |")
    print(f"| --- | --- |{' --- |' * len(METRICS)}")
    for mode in MODES:
        cells = [spread([scores[mode, seed][metric] for seed in options.seeds]) for metric in METRICS]
        print(f"| {mode} | {len(options.seeds)} | {' | '.join(cells)} |")
    gaps = [scores["without", seed]["cider_d"] - scores["with", seed]["cider_d"] for seed in options.seeds]
    print(f"\nCIDEr-D without minus with: {spread(gaps)} ({', '.join(f'{gap:+.4f}' for gap in gaps)})")


if __name__ == "__main__":
    main()

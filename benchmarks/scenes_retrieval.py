"""Retrieval of synthetic scenes by their descriptions: recalls on 1,000 held-out scenes, with several seeds.

    python benchmarks/scenes_retrieval.py

A text has the five statements about a scene, because one statement is true of many scenes: with one statement, a
perfect model ranks the right scene first in about one of eight cases, which this script also computes. A seed
determines scenes and weights. Finished runs are skipped, and stopped runs are resumed. Arguments `key=value` after the
options change the training config.
"""

import argparse
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from training_runs import call, cpu_minutes, spread

from hf_ngsan.data import load_data
from hf_ngsan.data.scenes import Statement
from hf_ngsan.data.scenes.relations import AMBIGUOUS, FAMILIES
from hf_ngsan.data.scenes.scoring import answers_by_object
from hf_ngsan.io.files import write_text_atomically
from hf_ngsan.io.packaged import find_config
from hf_ngsan.tasks import load_training_config

CONFIG = "mhsan/scenes"
REQUIRED, MOST_CPU_MINUTES = 60, 30
"""Recall@1 of scenes in percent; 15 minutes on two cores."""
SCORES = ("text_to_image_r1", "text_to_image_r5", "image_to_text_r1", "rsum")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--output", type=Path, default=Path("runs/scenes_retrieval"), metavar="DIR", help="(%(default)s)"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(0 1 2)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def scores(options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Returns the scores of one run on its test scenes, after training and evaluating it if necessary."""
    run = options.output / f"mhsan-{seed}"
    spec = load_training_config(find_config(CONFIG), options.overrides).data.spec.replace("seed=0", f"seed={seed}")
    if not (run / "test_scores.json").exists():
        settings = [f"training.output_dir={run}", f"training.seed={seed}", "training.num_threads=1"]
        call(run, "train", "--config", CONFIG, *options.overrides, f"data.spec={spec}", *settings, "--resume")
        result = json.loads(call(run, "evaluate", "--model", run, "--data", spec, "--split", "test"))
        write_text_atomically(run / "test_scores.json", json.dumps(result["all"], indent=2) + "\n")
    return json.loads((run / "test_scores.json").read_text())


def best_possible(spec: str, statements: int) -> float:
    """Returns the recall@1 in percent of a perfect model, from the first `statements` of each text.

    If several scenes match a text, it ranks the right one first by chance.
    """
    rows = [dict(row) for row in load_data(spec, "test").select_columns(["captions", "objects", "visual_boxes"])]
    facts = [facts_of(row) for row in rows]
    shares = []
    for row in rows:
        described = [Statement.parse(caption) for caption in row["captions"][0].split(" and ")[:statements]]
        shares.append(1 / sum(all(fact in scene for fact in described) for scene in facts))
    return 100 * float(np.mean(shares))


def facts_of(row: dict) -> set[Statement]:
    """Returns all true statements about the objects of a scene in relation to its landmark."""
    answers = answers_by_object(row)
    landmark = Statement.parse(row["captions"][0].split(" and ")[0]).other
    return {
        Statement(name, family.relations[answers[family.name][place]], landmark)
        for place, name in enumerate(row["objects"])
        for family in FAMILIES
        if name != landmark and answers[family.name][place] != AMBIGUOUS
    }


def main() -> None:
    options = parse_arguments()
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda seed: scores(options, seed), options.seeds))
    print(f"| seeds | {' | '.join(SCORES)} |\n| --- |{' --- |' * len(SCORES)}")
    print(f"| {len(results)} | {' | '.join(spread([result[name] for result in results]) for name in SCORES)} |")
    worst = min(result["text_to_image_r1"] for result in results)
    minutes = max(cpu_minutes(options.output / f"mhsan-{seed}") for seed in options.seeds)
    print(f"\nrecall@1 of scenes: at least {worst:.1f}%, required: {REQUIRED}%")
    print(f"CPU minutes of a training: at most {minutes:.1f}, required: at most {MOST_CPU_MINUTES}")
    spec = load_training_config(find_config(CONFIG), options.overrides).data.spec
    bounds = {number: best_possible(spec, number) for number in (1, 5)}
    print(f"a perfect model: {bounds[1]:.1f}% by one statement, {bounds[5]:.1f}% by all five")


if __name__ == "__main__":
    main()

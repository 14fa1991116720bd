"""Training of the packaged captioner: also its backbone's last stages, distillation from all seeds, self-critical.

    python benchmarks/flickr8k_captioner.py --features FEATURES
    python benchmarks/flickr8k_backbone.py --images DIR --checkpoint flickr8k_captioner

The first command trains captioners on features. The second command starts from their first stage, cross-entropy. It
attaches the backbone to each captioner, trains both by cross-entropy, then the decoder self-critically, distills the
captioners of all seeds into a student for each seed, and trains the student's decoder self-critically. Prints CIDEr-D
on the validation split after every stage, with three beams. Finished runs are skipped, and stopped runs are
resumed. The checkpoint is the best captioner of the last stage, in float16, with its backbone.
"""

import argparse
import json
import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flickr8k_captioner import MOST_BAD_ENDINGS, VISION, measured, table
from flickr8k_checkpoint import write_checkpoint
from training_runs import call, cpu_minutes

CONFIG = "ngsan/flickr8k_backbone"
STAGES = {
    "tuned": "backbone trained, then self-critical",
    "student": "+ distilled from all seeds",
    "refined": "+ self-critical again",
}
"""Prefixes of the folders of runs."""
REFINING = ["training.stage=scst", "self_critical.epochs=3", "self_critical.learning_rate=2.5e-4"]
REQUIRED = 0.66


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, metavar="DIR", help="Flickr8k in a form that hf-ngsan train reads")
    runs = Path("runs/flickr8k")
    parser.add_argument(
        "--output",
        type=Path,
        default=runs,
        metavar="DIR",
        help="folder of runs, including the first stage (%(default)s)",
    )
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="seeds of teachers (0 1 2)"
    )
    parser.add_argument(
        "--students", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="seeds of students (0 1 2)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="runs at a time (%(default)s)")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="write the best captioner's checkpoint there")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the config of every run")
    return parser.parse_intermixed_args()


def train_captioner(options: argparse.Namespace, seed: int) -> None:
    """Attaches the backbone to a captioner of features, and trains both."""
    start = options.output / f"attached-{seed}"
    if not start.exists():
        backbone = ["--backbone", VISION["backbone"], "--image-size", VISION["image_size"]]
        call(start, "attach-vision", "--model", options.output / f"ngsan-{seed}" / "xe", *backbone, "--output", start)
    train(options, options.output / f"tuned-{seed}", seed, f"model.init_from={start}")


def train_student(options: argparse.Namespace, seed: int) -> None:
    """Distills all captioners into one, then trains it self-critically with CIDEr-D."""
    teachers = [str(options.output / f"tuned-{other}" / "best") for other in options.seeds]
    start = options.output / f"tuned-{seed}" / "best"
    taught = ["training.stage=distill", f"training.teachers={json.dumps(teachers)}", f"model.init_from={start}"]
    student = options.output / f"student-{seed}"
    train(options, student, seed, *taught)
    train(options, options.output / f"refined-{seed}", seed, *REFINING, f"model.init_from={student / 'best'}")


def train(options: argparse.Namespace, run: Path, seed: int, *settings: str) -> None:
    settings = (f"data.spec=images:{options.images}", f"training.output_dir={run}", f"training.seed={seed}", *settings)
    call(run, "train", "--config", CONFIG, *settings, "training.num_threads=1", *options.overrides, "--resume")


def main() -> None:
    options = parse_arguments()
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda seed: train_captioner(options, seed), options.seeds))
        list(pool.map(lambda seed: train_student(options, seed), options.students))

        def scores(seed: int) -> dict[str, dict[str, float]]:
            data = f"images:{options.images}"
            return {kind: measured(options.output / f"{kind}-{seed}", "best", data) for kind in STAGES}

        results = dict(zip(options.students, pool.map(scores, options.students), strict=True))
    means = table(results, STAGES)
    print(means)
    finals = {seed: result["refined"] for seed, result in results.items()}
    mean = statistics.mean(final["cider_d"] for final in finals.values())
    bad = max(final["bad_endings"] for final in finals.values())
    print(f"\nCIDEr-D of the last stage: {mean:.4f}, required: at least {REQUIRED}")
    print(f"bad endings: at most {bad:.2%}, required: at most {MOST_BAD_ENDINGS:.0%}")
    for kind in STAGES:
        minutes = [cpu_minutes(options.output / f"{kind}-{seed}") for seed in options.students]
        print(f"CPU minutes of {kind}-*: {min(minutes):.0f} to {max(minutes):.0f}")
    if options.checkpoint is not None:
        best = max(finals, key=lambda seed: finals[seed]["cider_d"])
        run = options.output / f"refined-{best}"
        write_checkpoint(run, options.checkpoint, VISION, best, results, "refined", means)


if __name__ == "__main__":
    main()

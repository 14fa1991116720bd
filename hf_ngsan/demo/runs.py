"""Training runs of the demo, side by side, and their scores."""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context

from tqdm.auto import tqdm

from ..data import extra_scores_of
from ..io.files import write_text_atomically
from ..loading.models import load_captioner, load_model, quiet_loading
from ..tasks import RetrievalConfig, embed_pairs, evaluate_captioner, load_training_config, train
from ..tasks.caption_rows import load_rows, rows_for
from ..training import ConfigError, TrainingConfig
from ..training.output_folder import training_config_of

CHANCE = 0.5
"""Share of right relations without geometry, since the two answers to a prompt are equally likely."""


def check_earlier_run(config: TrainingConfig, retrain: bool) -> None:
    """Raises a ConfigError if the folder has a run of another config, unless it may be replaced."""
    earlier = training_config_of(config.output_dir)
    if not retrain and earlier.is_file() and load_training_config(earlier).changes_that_break_resuming(config):
        raise ConfigError(
            f"{config.output_dir.parent} holds a demo with another seed or training config; add --retrain to replace "
            "it, or choose another folder with --output."
        )


def train_and_compare(configs: Mapping[str, TrainingConfig], retrain: bool = False) -> dict[str, dict[str, float]]:
    """Trains and scores the missing variants side by side; returns the scores of all."""
    missing = {name: config for name, config in configs.items() if retrain or read_scores(config) is None}
    if missing:
        print(
            f"Training {', '.join(missing)} on synthetic scenes, side by side: some minutes on two cores.", flush=True
        )
        train_side_by_side(missing, retrain)
    else:
        print("All models are trained already; --retrain trains them again.", flush=True)
    scores = {name: read_scores(config) for name, config in configs.items()}
    return {name: values for name, values in scores.items() if values is not None}


def train_side_by_side(configs: Mapping[str, TrainingConfig], retrain: bool) -> None:
    """Trains and scores each variant in its own process, with one progress bar for all."""
    total = sum(config.training.epochs for config in configs.values())
    with (
        ProcessPoolExecutor(len(configs), mp_context=get_context("spawn"), initializer=be_silent) as pool,
        tqdm(total=total, unit=" epochs", desc="training", leave=False, disable=None) as bar,
    ):
        runs = {pool.submit(train_and_score, config, retrain): name for name, config in configs.items()}
        while runs:
            done, _ = wait(runs, timeout=1, return_when=FIRST_COMPLETED)
            bar.update(sum(map(finished_epochs, configs.values())) - bar.n)
            for run in done:
                name, seconds = runs.pop(run), round(run.result()["training_seconds"])
                bar.write(f"  {name}: trained in {seconds // 60}:{seconds % 60:02d} min", file=sys.stdout)


def finished_epochs(config: TrainingConfig) -> int:
    history = config.output_dir / "history.jsonl"
    return len(history.read_text(encoding="utf-8").splitlines()) if history.is_file() else 0


def be_silent() -> None:
    """Discards the error output of a worker process; its exceptions reach the main process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def train_and_score(config: TrainingConfig, retrain: bool = False) -> dict[str, float]:
    """Trains a model of scenes, and writes scores and captions of the test scenes into the run's folder.

    Returns:
        The scores of a captioner, relation accuracy included, or the recalls of a dual encoder; and `training_seconds`.
    """
    if retrain:
        (config.output_dir / "scores.json").unlink(missing_ok=True)  # those of the run that is replaced
    result = train(config, resume=not retrain, overwrite=retrain)
    spec, batch_size, rows = config.data.spec, config.evaluation.batch_size, load_rows(config.data.spec, "test")
    if isinstance(config, RetrievalConfig):
        model, processor = load_model(result.best_dir, "retrieval")
        scores = embed_pairs(model, processor, rows, batch_size=batch_size).scores()
    else:
        model, processor = load_captioner(result.best_dir)
        rows = rows_for(model, processor, rows, spec)
        extra = extra_scores_of(spec)
        evaluation = evaluate_captioner(model, processor, rows, extra_scores=extra, batch_size=batch_size)
        evaluation.save(config.output_dir / "captions.json")
        scores = evaluation.scores
    scores = {**scores, "training_seconds": sum(entry["seconds"] for entry in result.history)}
    write_text_atomically(config.output_dir / "scores.json", json.dumps(scores, indent=2) + "\n")
    return scores


def read_scores(config: TrainingConfig) -> dict[str, float] | None:
    """Returns the scores of a finished run; None for an unfinished one."""
    file = config.output_dir / "scores.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def print_table(scores: Mapping[str, Mapping[str, float]]) -> None:
    print(f"\n{'':15}{'CIDEr-D':>10}{'BLEU-4':>10}{'objects':>10}{'relations: symmetric':>24}{'directional':>14}")
    for name, values in scores.items():
        print(
            f"{name:15}{values['cider_d']:10.2f}{values['bleu_4']:10.3f}{values['objects']:10.1%}"
            f"{values['symmetric']:24.1%}{values['directional']:14.1%}"
        )
    print(f"{'chance':15}{'':30}{CHANCE:24.1%}{CHANCE:14.1%}\n")


@contextmanager
def calm_logs() -> Iterator[None]:
    """Lets transformers and the training loop log only errors inside the `with` block."""
    training = logging.getLogger("hf_ngsan.training")
    level = training.level
    training.setLevel(logging.WARNING)
    try:
        with quiet_loading():
            yield
    finally:
        training.setLevel(level)

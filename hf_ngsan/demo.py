"""`hf-ngsan demo`: from nothing to captioners of drawn scenes that are trained, compared, shared and explained."""

import json
import logging
import os
import sys
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from tqdm.auto import tqdm

from .data import draw_scene
from .data.scenes import Statement
from .hub import save_for_hub
from .training import Recipe, RecipeError, evaluate_captioner, load_captioner, load_recipe, train
from .training.files import replace_folder_contents, write_text_atomically
from .training.output_folder import RECIPE_FILE
from .training.recipe import changes_that_break_resuming
from .training.rows import load_rows
from .visualization import check_matplotlib, plot_caption, save_figure, word_attention

SCENES = {
    "model": {
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 16,
        "intermediate_size": 256,
        "geometric_bias": ["query", "key"],
        "geometry_hidden_size": 32,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.125,
    },
    "data": {"spec": "scenes:size=8000,validation=200,test=500", "min_word_count": 1},
    "training": {
        "epochs": 10,
        "batch_size": 32,
        "learning_rate": 2e-3,
        "schedule": "cosine",
        "warmup_epochs": 1,
        "max_grad_norm": 1.0,
        "num_threads": 1,
    },
    "evaluation": {"every_epochs": 10, "num_beams": 3, "max_new_tokens": 12, "batch_size": 250},
}
"""The recipe of NG-SAN on drawn scenes: what differs from the defaults of `Recipe`."""

VARIANTS = {
    "SAN": {"query_norm": None, "geometric_bias": []},
    "N-SAN": {"geometric_bias": []},
    "G-SAN": {"query_norm": None},
    "NG-SAN": {},
    "NG-SAN signed": {"geometry_features": "signed"},
}
"""Fields of the configuration that make a variant of NG-SAN."""

COMPARED = ("SAN", "NG-SAN", "NG-SAN signed")
SHOWN = "NG-SAN signed"
CHANCE = 0.5
"""Share of right relations without geometry: the two answers to a prompt are equally likely by construction."""

NUM_CAPTIONS = 20


def main(
    output: str | Path = "runs/demo",
    seed: int = 0,
    retrain: bool = False,
    changes: Mapping[str, Mapping] | None = None,
) -> int:
    """Train SAN, NG-SAN and NG-SAN with signed geometry alike, compare them, and use the last one.

    Prints what it does and a table. What an earlier call has finished is not done again; what it has begun is gone on
    with. `output` gets

    - `san/`, `ng-san/`, `ng-san-signed/`: the training runs, with `scores.json` and the captions of the test scenes;
    - `model/`: NG-SAN signed with its code, for `pipeline("image-to-text")` and the Hub;
    - `captions.json`: what that pipeline says about the first test scenes;
    - `figure.png`: a scene, its caption, and the attention of the relation's word.

    Args:
        output: the folder.
        seed: of scenes and weights.
        retrain: train again although there are trained captioners.
        changes: sections of the recipe with keys to change.

    Returns:
        The exit code 0.

    Raises:
        RecipeError: the folder holds captioners of another recipe.
        MissingPlotsError: matplotlib is not installed.
    """
    check_matplotlib()
    output = Path(output)
    recipes = {name: scenes_recipe(name, output / folder_name(name), seed, changes) for name in COMPARED}
    for recipe in recipes.values():
        check_earlier_run(recipe, retrain)
    with calm_logs():
        scores = train_and_compare(recipes, retrain)
        print_table(scores)
        use(recipes[SHOWN], output)
    return 0


def scenes_recipe(
    variant: str, output_dir: Path, seed: int = 0, changes: Mapping[str, Mapping] | None = None
) -> Recipe:
    """The recipe of a variant on drawn scenes; `seed` is that of the scenes and of the weights.

    Args:
        variant: one of `VARIANTS`.
        output_dir: folder of the run.
        seed: not negative.
        changes: sections with keys to change.
    """
    changes = changes or {}
    sections = {name: {**values, **changes.get(name, {})} for name, values in SCENES.items()}
    sections["model"] |= VARIANTS[variant]
    sections["data"]["spec"] += f",seed={seed}"
    sections["training"] |= {"seed": seed, "output_dir": str(output_dir)}
    return Recipe.from_dict(sections)


def folder_name(variant: str) -> str:
    return variant.lower().replace(" ", "-")


def check_earlier_run(recipe: Recipe, retrain: bool):
    """Raise a RecipeError if the folder of a run holds one of another recipe, unless that is to be replaced."""
    earlier = recipe.output_dir / RECIPE_FILE
    if not retrain and earlier.is_file() and changes_that_break_resuming(load_recipe(earlier), recipe):
        raise RecipeError(
            f"{recipe.output_dir.parent} holds a demo with another seed or recipe; add --retrain to replace it, or "
            "choose another folder with --output."
        )


def train_and_compare(recipes: Mapping[str, Recipe], retrain: bool = False) -> dict[str, dict[str, float]]:
    """Train and score the variants that are not there yet, side by side; returns the scores of all."""
    missing = {name: recipe for name, recipe in recipes.items() if retrain or read_scores(recipe) is None}
    if missing:
        print(f"Training {', '.join(missing)} on drawn scenes, side by side: some minutes on two cores.", flush=True)
        train_side_by_side(missing, retrain)
    else:
        print("All captioners are trained already; --retrain trains them again.", flush=True)
    return {name: read_scores(recipe) for name, recipe in recipes.items()}


def train_side_by_side(recipes: Mapping[str, Recipe], retrain: bool):
    """Train and score each variant in a process of its own, with one progress bar for all."""
    for split in ("train", "validation", "test"):
        load_rows(next(iter(recipes.values())).data.spec, split)  # drawn once, before the processes want them
    total = sum(recipe.training.epochs for recipe in recipes.values())
    with (
        ProcessPoolExecutor(len(recipes), mp_context=get_context("spawn"), initializer=be_silent) as pool,
        tqdm(total=total, unit=" epochs", desc="training", leave=False, disable=None) as bar,
    ):
        runs = {pool.submit(train_and_score, recipe, retrain): name for name, recipe in recipes.items()}
        while runs:
            done, _ = wait(runs, timeout=1, return_when=FIRST_COMPLETED)
            bar.update(sum(map(finished_epochs, recipes.values())) - bar.n)
            for run in done:
                name = runs.pop(run)
                bar.write(f"  {name}: trained in {minutes(run.result()['training_seconds'])}", file=sys.stdout)


def finished_epochs(recipe: Recipe) -> int:
    history = recipe.output_dir / "history.jsonl"
    return len(history.read_text(encoding="utf-8").splitlines()) if history.is_file() else 0


def be_silent():
    """Let a process beside others write nothing between their lines; what it raises reaches the first process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def train_and_score(recipe: Recipe, retrain: bool = False) -> dict[str, float]:
    """Train a captioner of scenes and score it on the test scenes; the scores and captions go into the run's folder.

    Returns:
        What `evaluate_captioner` measures, relation accuracy included, and `training_seconds`.
    """
    result = train(recipe, resume=not retrain, overwrite=retrain)
    model, processor = load_captioner(result.best_dir)
    evaluation = evaluate_captioner(
        model,
        processor,
        load_rows(recipe.data.spec, "test"),
        relations=True,
        batch_size=recipe.evaluation.batch_size,
    )
    evaluation.save(recipe.output_dir / "captions.json")
    scores = {**evaluation.scores, "training_seconds": sum(entry["seconds"] for entry in result.history)}
    write_text_atomically(recipe.output_dir / "scores.json", json.dumps(scores, indent=2) + "\n")
    return scores


def read_scores(recipe: Recipe) -> dict[str, float] | None:
    """The scores of a finished run; None if it is not finished."""
    file = recipe.output_dir / "scores.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def print_table(scores: Mapping[str, Mapping[str, float]]):
    print(f"\n{'':15}{'CIDEr-D':>10}{'BLEU-4':>10}{'relations: symmetric':>24}{'directional':>14}")
    for name, values in scores.items():
        print(
            f"{name:15}{values['cider_d']:10.2f}{values['bleu_4']:10.3f}"
            f"{values['symmetric']:24.1%}{values['directional']:14.1%}"
        )
    print(f"{'chance':15}{'':20}{CHANCE:24.1%}{CHANCE:14.1%}\n")


def use(recipe: Recipe, output: Path):
    """Save a trained captioner with its code, load it as anyone would, caption scenes with it and explain a caption."""
    from transformers import AutoModelForImageTextToText, AutoProcessor, pipeline

    folder = output / "model"
    replace_folder_contents(folder, lambda new: save_for_hub(*load_captioner(recipe.output_dir), new))
    print(f'Saved to {folder}; read back with AutoModelForImageTextToText and pipeline("image-to-text").')

    rows = load_rows(recipe.data.spec, "test")
    rows = rows.select(range(min(NUM_CAPTIONS, len(rows))))
    captions = [found[0]["generated_text"] for found in pipeline("image-to-text", model=str(folder))(rows)]
    entries = [
        {"image_id": row["image_id"], "caption": caption, "references": row["captions"]}
        for row, caption in zip(rows, captions, strict=True)
    ]
    write_text_atomically(output / "captions.json", json.dumps(entries, indent=1) + "\n")
    print(f"Captions of test scenes, in {output / 'captions.json'}:")
    for entry in entries[:3]:
        print(f"  {entry['image_id']}: {entry['caption']}")

    model, processor = AutoModelForImageTextToText.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
    explain_caption(model.eval(), processor, rows[0], output / "figure.png")
    print(f"A scene, its caption and the attention of a word: {output / 'figure.png'}")


def explain_caption(model, processor, row: Mapping, path: Path):
    """Draw a scene with its caption and the attention of the relation's first word."""
    inputs = processor(visual_features=[row["visual_features"]], visual_boxes=[row["visual_boxes"]])
    [attention] = word_attention(model, processor.tokenizer, inputs, model.generate(**inputs))
    statement = Statement.parse(" ".join(attention.words))
    word = -1 if statement is None else statement.relation.split()[0]
    save_figure(plot_caption(draw_scene(row), row["visual_boxes"], attention, word, row["objects"]), path)


@contextmanager
def calm_logs():
    """Inside the `with` block transformers and the training loop report errors only."""
    from transformers.utils import logging as transformers_logging

    training = logging.getLogger("hf_ngsan.training")
    verbosity, level = transformers_logging.get_verbosity(), training.level
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    training.setLevel(logging.WARNING)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        training.setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()


def minutes(seconds: float) -> str:
    """E.g. `1:05 min`."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d} min"

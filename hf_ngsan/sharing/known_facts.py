"""What is known of a trained model beside its configuration, from the files of its folder and of its training run."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ..loading import ModelFolderError, find_model_folder
from ..tasks.registry import load_recipe, task_class_of
from ..training.checkpoints import PROGRESS, Checkpoints
from ..training.output_folder import TRAINING_CONFIG, training_config_of
from ..training.recipe import Recipe
from .cards import CARD, CardFacts
from .evaluations import RecordedEvaluation, caption_settings, fingerprint, read_evaluations, weights_checksum

PLACES = ("output_dir", "num_workers", "tracker")
"""Keys of a training config that are about the machine alone."""


def known_facts(model: str | os.PathLike, other_runs: Sequence[str] = (), **given: Any) -> CardFacts:
    """Returns what the files of a model's folder, and of its training run, tell.

    Args:
        model: what [`find_model_folder`] takes; a model on the Hub, which is no folder, tells nothing.
        other_runs: folders of training runs with the same training config and other seeds.
        given: other attributes of [`CardFacts`].

    Raises:
        ModelFolderError: another run has another training config, or is none.
        EvaluationsError: evaluations that are damaged.
    """
    folder = Path(find_model_folder(model))
    run = run_of(folder)
    recipe = None if run is None else load_recipe(training_config_of(run))
    config = None if recipe is None else config_anywhere(recipe)
    if config is None and (folder / TRAINING_CONFIG).is_file():
        config = yaml.safe_load((folder / TRAINING_CONFIG).read_text(encoding="utf-8"))
    others = []
    for other in other_runs:
        place = Path(find_model_folder(other))
        its_run = run_of(place)
        theirs = None if its_run is None else config_anywhere(load_recipe(training_config_of(its_run)))
        if config is None or theirs is None or without_seed(theirs) != without_seed(config):
            raise ModelFolderError(
                f"{other} is no training run with the training config of {model} and another seed; name runs that "
                "differ in training.seed alone."
            )
        others.append(tuple(evaluations_of(place)))
    card = folder / CARD
    return CardFacts(
        own_card=card.read_text(encoding="utf-8") if card.is_file() else None,
        evaluations=tuple(evaluations_of(folder)),
        other_seeds=tuple(others),
        training_config=config,
        history=() if run is None else tuple(history_of(run)),
        **given,
    )


def run_of(folder: Path) -> Path | None:
    """Returns the folder of the training run that a model's folder is part of."""
    run = folder.absolute().parent
    return run if training_config_of(run).is_file() else None


def history_of(run: Path) -> list[dict]:
    """Returns an entry for each epoch of a run."""
    try:
        lines = (run / "history.jsonl").read_text(encoding="utf-8").splitlines()
        return [dict(json.loads(line)) for line in lines]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise ModelFolderError(
            f"{run / 'history.jsonl'} is damaged; leave the model in a folder of its own."
        ) from error


def evaluations_of(folder: Path) -> list[RecordedEvaluation]:
    """Returns the evaluations of a model: of its training run, if it is its best, and those that were recorded."""
    run = run_of(folder)
    found = list(of_the_run(run)) if run is not None and folder.name == "best" else []
    seed = None if run is None else load_recipe(training_config_of(run)).training.seed
    for one in read_evaluations(folder):
        found.append(replace(one, seed=seed if one.seed is None else one.seed))
    return [replace(one, data=public_name(one.data)) for one in found]


def of_the_run(run: Path) -> Iterator[RecordedEvaluation]:
    """Yields the evaluation that chose the best model of a run, if the newest checkpoint still tells which that was."""
    checkpoints = Checkpoints(run / "checkpoints").all()
    history = history_of(run)
    if not checkpoints or not history:
        return
    best_epoch = json.loads((checkpoints[-1] / PROGRESS).read_text(encoding="utf-8"))["progress"]["best_epoch"]
    entry = next((entry for entry in history if entry.get("epoch") == best_epoch), None)
    if entry is None:
        return
    recipe: Any = load_recipe(training_config_of(run))
    scores = scores_of(entry)
    task = task_class_of(recipe.model)(recipe)
    settings: dict[str, Any] = {}
    if hasattr(recipe.evaluation, "num_beams"):
        generation = json.loads((run / "best" / "generation_config.json").read_text(encoding="utf-8"))
        own = {name: value for name, value in vars(recipe.evaluation).items() if value is not None}
        settings = caption_settings(generation, own)
    yield RecordedEvaluation(
        data=recipe.data.spec,
        split=recipe.data.validation_split,
        rows=recipe.data.limit,
        scores=scores,
        fingerprints={name: fingerprint(name, settings) for name in scores},
        weights=weights_checksum(run / "best"),
        seed=recipe.training.seed,
        chose_epoch=task.metric in scores,
    )


def scores_of(entry: Mapping[str, Any]) -> dict[str, float]:
    """Returns the scores in an entry of a run's history; they stand between its learning rate and its time."""
    names = list(entry)
    first, last = names.index("learning_rate") + 1, names.index("seconds")
    return {name: entry[name] for name in names[first:last]}


def without_seed(config: Mapping) -> dict:
    return {**config, "training": {**config["training"], "seed": None}}


def config_anywhere(recipe: Recipe) -> dict:
    """Returns a training config as YAML has it, without what is about one machine: folders become their names."""
    sections = {
        name: {key: public(value) for key, value in section.items() if key not in PLACES}
        for name, section in recipe.to_dict().items()
    }
    sections["data"]["spec"] = public_name(recipe.data.spec)
    return sections


def public(value: Any) -> Any:
    """Returns a value of a training config without the folders of this machine."""
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [public(item) for item in value]
    if isinstance(value, str) and (os.path.isabs(value) or os.path.exists(os.path.expanduser(value))):
        return Path(value).name
    return value


def public_name(spec: str) -> str:
    """Returns a dataset's spec without the folders of this machine."""
    reader, colon, rest = spec.partition(":")
    source, comma, keys = rest.partition(",")
    return f"{reader}{colon}{public(source)}{comma}{keys}"

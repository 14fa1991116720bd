"""Facts for the card of a trained model, read from its folder and its training run: config, history, evaluations."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..io.bounds import is_finite
from ..io.messages import one_sentence
from ..loading.models import ModelFolderError, find_model_folder, load_config, task_of
from ..tasks.registry import load_training_config, task_class
from ..training.config import TrainingConfig, read_yaml
from ..training.config import load_training_config as load_training_config_of_class
from ..training.output_folder import BEST_SCORES, TRAINING_CONFIG, training_config_of
from ..training.task import Evaluation
from .cards import CARD, CardFacts
from .evaluations import RecordedEvaluation, fingerprints_of, read_evaluations, weights_checksum
from .own_files import refuse_files_elsewhere

HISTORY = "history.jsonl"
PLACES = ("output_dir", "num_workers", "tracker")
"""Keys of a training config that concern only the machine."""


def known_facts(model: str | os.PathLike, other_runs: Sequence[str] = (), **given: Any) -> CardFacts:
    """Reads the facts for a card from a model's folder and its training run.

    Args:
        model: folder, training run or name, see [`find_model_folder`]; a model on the Hub has no facts.
        other_runs: folders of training runs with the same training config and other seeds.
        given: other attributes of [`CardFacts`].

    Raises:
        ModelFolderError: another run has another training config or is not a run; files of the model or a run are
            damaged or outside the folder ([`refuse_files_elsewhere`]).
        EvaluationsError: evaluations are damaged.
    """
    folder = own_folder(model)
    run = run_of(folder)
    config = config_of(folder)
    others = []
    for other in other_runs:
        place = own_folder(other)
        theirs = None if run_of(place) is None else config_of(place)
        if config is None or theirs is None or but_for_the_seed(theirs) != but_for_the_seed(config):
            raise ModelFolderError(
                f"{other} is not a training run with the training config of {model} and another seed; name runs that "
                "differ in training.seed alone."
            )
        others.append(tuple(evaluations_of(place)))
    try:
        own_card = (folder / CARD).read_text(encoding="utf-8") if (folder / CARD).is_file() else None
    except UnicodeDecodeError:
        raise ModelFolderError(f"{folder / CARD} is not UTF-8 text; correct it, or delete it.") from None
    return CardFacts(
        own_card=own_card,
        evaluations=tuple(evaluations_of(folder)),
        other_seeds=tuple(others),
        training_config=config,
        history=() if run is None else tuple(history_of(run)),
        **given,
    )


def own_folder(model: str | os.PathLike) -> Path:
    """Returns the folder of a model by name; refuses links of it or its run to files elsewhere."""
    folder = Path(find_model_folder(model))
    if folder.is_dir():  # and not a model on the Hub
        given = Path(os.path.expanduser(model))
        if folder.parent == given:
            refuse_files_elsewhere(given, [folder.name])
        refuse_files_elsewhere(folder)
    refuse_run_elsewhere(folder, [TRAINING_CONFIG, HISTORY, folder.name])
    return folder


def refuse_run_elsewhere(folder: Path, names: Sequence[str]) -> None:
    """Refuses a model if its training run links these files elsewhere, or takes settings from another file."""
    run = run_of(folder)
    if run is not None:
        refuse_files_elsewhere(run, names)
        config = training_config_of(run)
        if "base" in mapping_of(config):
            raise ModelFolderError(
                f"{config} has a base, which no training run writes; leave the model in a folder of its own."
            )


def recorded_config(model: str | os.PathLike) -> dict | None:
    """Returns the training config of a model, for a model that is derived from it; None without one.

    Raises:
        ModelFolderError: the training config is damaged, or a link to elsewhere.
    """
    folder = Path(find_model_folder(model))
    refuse_files_elsewhere(folder, [TRAINING_CONFIG])
    refuse_run_elsewhere(folder, [TRAINING_CONFIG])
    return config_of(folder)


def config_of(folder: Path) -> dict | None:
    """Returns the training config of a model, from its run or folder, as YAML values; None without one."""
    config = config_of_run(folder)
    if config is not None:
        return config_anywhere(config)
    file = folder / TRAINING_CONFIG
    if not file.is_file():
        return None
    sections = mapping_of(file)
    for name, section in sections.items():
        if not isinstance(section, Mapping):
            raise ModelFolderError(
                f"{file}: section {name} must be a mapping of keys to values, not {section!r:.100}; correct it, or "
                "delete the file."
            )
    return sections


def mapping_of(file: Path) -> dict:
    """Returns the mapping in a JSON or YAML file; raises a ModelFolderError for anything else."""
    try:
        found = json.loads(file.read_bytes()) if file.suffix == ".json" else read_yaml(file.read_bytes(), file.name)
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"{file} cannot be read ({one_sentence(error)}); correct it, or delete it.") from None
    if not isinstance(found, dict):
        raise ModelFolderError(f"{file} must hold a mapping, not {type(found).__name__}; correct it, or delete it.")
    return found


def run_of(folder: Path) -> Path | None:
    """Returns the folder of the training run of a model's folder; None without one."""
    run = folder.absolute().parent
    return run if training_config_of(run).is_file() else None


def config_of_run(folder: Path) -> TrainingConfig | None:
    """Returns the training config of the run of a model's folder; the model decides the task."""
    run = run_of(folder)
    if run is None:
        return None
    task = task_of(load_config(folder))
    if task is None:
        return load_training_config(training_config_of(run))
    return load_training_config_of_class(training_config_of(run), (), lambda model: task_class(task).config_class)


def history_of(run: Path) -> list[dict]:
    """Returns an entry for each epoch of a run."""
    try:
        lines = (run / HISTORY).read_text(encoding="utf-8").splitlines()
        entries = [dict(json.loads(line)) for line in lines]
        for entry in entries:
            can_be_shown = [isinstance(value, str | float) or is_finite(value) for value in entry.values()]
            if type(entry.get("epoch")) is not int or not all(can_be_shown):
                raise ValueError
        return entries
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, RecursionError) as error:
        raise ModelFolderError(f"{run / HISTORY} is damaged; leave the model in a folder of its own.") from error


def evaluations_of(folder: Path) -> list[RecordedEvaluation]:
    """Returns the evaluations of a model: its run's, if it is the best model of the run, and the recorded ones."""
    config = config_of_run(folder)
    found = list(of_the_run(folder, config)) if config is not None and folder.name == "best" else []
    seed = None if config is None else config.training.seed
    found += [replace(one, seed=seed if one.seed is None else one.seed) for one in read_evaluations(folder)]
    return [replace(one, data=public_name(one.data)) for one in found]


def of_the_run(best: Path, config: Any) -> Iterator[RecordedEvaluation]:
    """Yields the evaluation that chose the best model of a run, if its scores are beside it."""
    recorded = mapping_of(best / BEST_SCORES).get("scores") if (best / BEST_SCORES).is_file() else None
    scores = {name: one for name, one in recorded.items() if is_finite(one)} if isinstance(recorded, dict) else {}
    if not scores:
        return
    settings = best / "generation_config.json"
    written = mapping_of(settings) if settings.is_file() else {}
    generation = {name: value for name, value in written.items() if is_finite(value)}
    kind = task_class(str(task_of(load_config(best))))
    yield RecordedEvaluation(
        data=config.data.spec,
        split=config.data.validation_split,
        rows=config.data.limit,
        scores=scores,
        fingerprints=fingerprints_of(kind, Evaluation(scores), generation, vars(config.evaluation)),
        weights=weights_checksum(best),
        seed=config.training.seed,
        chose_epoch=config.evaluation.metric in scores,
    )


def but_for_the_seed(config: Mapping) -> dict:
    return {**config, "training": {**config["training"], "seed": None}}


def config_anywhere(config: TrainingConfig) -> dict:
    """Returns a training config as YAML values, without settings of the machine; folders become their names."""
    sections = {
        name: {key: public(value) for key, value in section.items() if key not in PLACES}
        for name, section in config.to_dict().items()
    }
    sections["data"]["spec"] = public_name(config.data.spec)
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

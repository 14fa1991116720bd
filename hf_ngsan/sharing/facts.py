"""What is known of a model, for its card: recorded evaluations, training config and history, read from its folder."""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..io.files import read_json_or_none, sha256, write_text_atomically
from ..io.packaged import CARD, INITIALIZED_FROM
from ..loading.models import ModelFolderError, find_model_folder, load_config, task_of
from ..tasks.registry import task_class
from ..training.config import TrainingConfig, read_yaml
from ..training.config import load_training_config as load_training_config_of_class
from ..training.output_folder import BEST_SCORES, TRAINING_CONFIG, training_config_of
from ..training.task import Evaluation, Task

EVALUATIONS = "evaluations.json"
HISTORY = "history.jsonl"
PLACES = ("output_dir", "num_workers", "tracker")
"""Keys of a training config that concern only the machine."""


@dataclass(frozen=True)
class RecordedEvaluation:
    """Scores of a model on a split.

    Attributes:
        data, split: spec of the dataset, and its split.
        rows: number of evaluated rows; None if unknown.
        scores, fingerprints: values, and the settings that they depend on, by metric.
        weights: checksum of the evaluated weights, see [`weights_checksum`].
        seed: seed of the training run; None if unknown.
        chose_epoch: whether the scores of this split chose the epoch of the model.
    """

    data: str
    split: str
    rows: int | None
    scores: Mapping[str, float]
    fingerprints: Mapping[str, str]
    weights: str
    seed: int | None = None
    chose_epoch: bool = False


@dataclass(frozen=True)
class CardFacts:
    """Facts about a model besides its configuration.

    Attributes:
        own_card: text of a user's card; it replaces the generated one.
        summary: Markdown that replaces the description from the configuration.
        evaluations: scores of exactly these weights.
        other_seeds: evaluations of each model with the same training config and another seed.
        training_config: settings by section.
        history: numbers of each epoch of the training.
        examples: captions by picture file in the folder of the checkpoint.
        limits: Markdown on limits of the model, before those from its configuration.
        sections: further Markdown by title.
        license, license_name: identifier on the Hub, such as "apache-2.0", and the name of one that is "other"; None
            for that of the models that the weights come from.
        language: language of the captions, such as "en".
    """

    own_card: str | None = None
    summary: str | None = None
    evaluations: Sequence[RecordedEvaluation] = ()
    other_seeds: Sequence[Sequence[RecordedEvaluation]] = ()
    training_config: Mapping[str, Mapping] | None = None
    history: Sequence[Mapping[str, Any]] = ()
    examples: Mapping[str, str] = field(default_factory=dict)
    limits: str = ""
    sections: Mapping[str, str] = field(default_factory=dict)
    license: str | None = None
    license_name: str | None = None
    language: str | None = None


def fingerprints_of(task: type[Task], evaluation: Evaluation, generation: Mapping, options: Mapping) -> dict[str, str]:
    """Returns the fingerprint of each score: the settings that it depends on, in the style of sacreBLEU.

    For example `cider_d|beams:3|max:20|tok:ptb|hf-ngsan:0.1.0`; the signature of a library is part of it.
    """
    fingerprints = {}
    for metric in evaluation.scores:
        settings = {**task.comparable_settings(metric, generation, options)}
        settings["signature"] = evaluation.signatures.get(metric)
        parts = [f"{name}:{value}" for name, value in settings.items() if value is not None]
        fingerprints[metric] = "|".join([metric, *parts, f"hf-ngsan:{version('hf-ngsan')}"])
    return fingerprints


def weights_checksum(folder: str | Path) -> str:
    """Returns a checksum of the weights in a model's folder."""
    digest = hashlib.sha256()
    for file in sorted([*Path(folder).glob("*.safetensors"), *Path(folder).glob("*.onnx")]):
        digest.update(f"{file.name} {sha256(file)}\n".encode())
    return digest.hexdigest()


def record_evaluation(folder: str | Path, evaluation: RecordedEvaluation) -> None:
    """Adds an evaluation to the record in a model's folder; it replaces one of the same rows and settings."""
    kept = [other for other in read_evaluations(folder) if not is_of_the_same(other, evaluation)]
    write_evaluations(folder, [*kept, evaluation])


def write_evaluations(folder: str | Path, evaluations: Sequence[RecordedEvaluation]) -> None:
    text = json.dumps([asdict(evaluation) for evaluation in evaluations], indent=1) + "\n"
    write_text_atomically(Path(folder) / EVALUATIONS, text)


def read_evaluations(folder: str | Path) -> list[RecordedEvaluation]:
    """Returns the evaluations of the weights in a folder, without those of earlier weights."""
    file = Path(folder) / EVALUATIONS
    entries = json.loads(file.read_bytes()) if file.is_file() else []
    weights = weights_checksum(folder) if entries else ""
    return [RecordedEvaluation(**entry) for entry in entries if entry["weights"] == weights]


def is_of_the_same(first: RecordedEvaluation, second: RecordedEvaluation) -> bool:
    """Returns whether two evaluations have the same rows, split and settings, whatever the seed."""
    fields = ("data", "split", "rows", "fingerprints")
    return all(getattr(first, name) == getattr(second, name) for name in fields)


def collect_card_facts(model: str | os.PathLike, other_runs: Sequence[str] = (), **given: Any) -> CardFacts:
    """Reads the facts for a card from a model's folder and its training run.

    Args:
        model: folder, training run or name, see [`find_model_folder`]; a model on the Hub has no facts.
        other_runs: folders of training runs with the same training config and other seeds.
        given: other attributes of [`CardFacts`].

    Raises:
        ModelFolderError: another run has another training config or is not a run, or files of the model lie elsewhere.
    """
    folder = Path(find_model_folder(model))
    refuse_files_elsewhere(folder)
    run, config = run_of(folder), config_of(folder)
    others = []
    for other in other_runs:
        place = Path(find_model_folder(other))
        theirs = None if run_of(place) is None else config_of(place)
        if config is None or theirs is None or without_seed(theirs) != without_seed(config):
            raise ModelFolderError(
                f"{other} is not a training run with the training config of {model} and another seed; name runs that "
                "differ in training.seed alone."
            )
        others.append(tuple(evaluations_of(place)))
    return CardFacts(
        own_card=(folder / CARD).read_text(encoding="utf-8") if (folder / CARD).is_file() else None,
        evaluations=tuple(evaluations_of(folder)),
        other_seeds=tuple(others),
        training_config=config,
        history=() if run is None else tuple(history_of(run)),
        **given,
    )


def refuse_files_elsewhere(folder: Path) -> None:
    """Refuses a stranger's folder that would make an upload have files of this machine.

    No link may lead out of the folder or its training run, but for code, of which nothing is read; no settings may name
    weights or a model elsewhere.
    """
    run = run_of(folder)
    of_run = [] if run is None else [folder, training_config_of(run), run / HISTORY]
    for root, paths in ((folder, folder.rglob("*") if folder.is_dir() else ()), (folder.parent, of_run)):
        for path in paths:
            is_code = path.suffix == ".py" and not path.is_dir()
            if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)) and not is_code:
                raise ModelFolderError(f"{path} is a link out of {root}; put a copy of the file there.")
    for file in [*folder.glob("*config.json"), *folder.glob("*.index.json")]:
        for mapping in mappings_in(json.loads(file.read_bytes())):
            elsewhere = [name for name in mapping.get("weight_map", {}).values() if "/" in name or "\\" in name]
            for key, part in INITIALIZED_FROM.items():
                is_saved = mapping.get(part) and mapping.get("save_frozen_weights") is not False
                if mapping.get(key) and not is_saved and os.path.lexists(os.path.expanduser(mapping[key])):
                    elsewhere.append(mapping[key])
            if elsewhere:
                raise ModelFolderError(
                    f"{file} names {elsewhere[0]!r:.200}, which is not in this folder; save the whole model there."
                )


def mappings_in(value: Any) -> Iterator[dict]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from mappings_in(item)


def recorded_config(model: str | os.PathLike) -> dict | None:
    """Returns the training config of a model; None without one."""
    folder = Path(find_model_folder(model))
    refuse_files_elsewhere(folder)
    return config_of(folder)


def config_of(folder: Path) -> dict | None:
    """Returns the training config of a model, from its run or folder, as YAML values; None without one."""
    config = config_of_run(folder)
    if config is not None:
        return config_anywhere(config)
    file = folder / TRAINING_CONFIG
    return read_yaml(file.read_bytes(), str(file)) if file.is_file() else None


def run_of(folder: Path) -> Path | None:
    """Returns the folder of the training run of a model's folder; None without one."""
    run = folder.absolute().parent
    return run if training_config_of(run).is_file() else None


def config_of_run(folder: Path) -> TrainingConfig | None:
    """Returns the training config of the run of a model's folder; the model decides the task."""
    run = run_of(folder)
    if run is None:
        return None
    task = task_class(str(task_of(load_config(folder))))
    return load_training_config_of_class(training_config_of(run), (), lambda model: task.config_class)


def history_of(run: Path) -> list[dict]:
    """Returns an entry for each epoch of a run."""
    file = run / HISTORY
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def evaluations_of(folder: Path) -> list[RecordedEvaluation]:
    """Returns the evaluations of a model: its run's, if it is the best model of the run, and the recorded ones."""
    config: Any = config_of_run(folder)
    seed = None if config is None else config.training.seed
    evaluations = [
        replace(recorded, seed=seed if recorded.seed is None else recorded.seed)
        for recorded in read_evaluations(folder)
    ]
    scores = (read_json_or_none(folder / BEST_SCORES) or {}).get("scores")
    if config is not None and folder.name == "best" and scores:  # that chose it
        written = read_json_or_none(folder / "generation_config.json") or {}
        generation = {
            name: value for name, value in written.items() if type(value) in (int, float) and math.isfinite(value)
        }
        task = task_class(str(task_of(load_config(folder))))
        of_the_run = RecordedEvaluation(
            data=config.data.spec,
            split=config.data.validation_split,
            rows=config.data.limit,
            scores=scores,
            fingerprints=fingerprints_of(task, Evaluation(scores), generation, vars(config.evaluation)),
            weights=weights_checksum(folder),
            seed=seed,
            chose_epoch=config.evaluation.metric in scores,
        )
        evaluations.insert(0, of_the_run)
    return [replace(evaluation, data=public_name(evaluation.data)) for evaluation in evaluations]


def without_seed(config: Mapping) -> dict:
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
    is_path = isinstance(value, str) and (os.path.isabs(value) or os.path.exists(os.path.expanduser(value)))
    return Path(value).name if is_path else value


def public_name(spec: str) -> str:
    """Returns a dataset's spec without the folders of this machine."""
    reader, colon, rest = spec.partition(":")
    source, comma, keys = rest.partition(",")
    return f"{reader}{colon}{public(source)}{comma}{keys}"

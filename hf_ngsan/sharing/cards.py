"""Model cards: reads the facts about a model from its folder, and renders the template `card.md.jinja`."""

import hashlib
import json
import math
import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCardData, metadata_load
from transformers import PreTrainedModel

from ..data.readers import READERS, Reader, parse_spec
from ..io.files import read_json_or_none, sha256, write_output, write_text_atomically
from ..io.packaged import (
    CARD,
    INITIALIZED_FROM,
    Source,
    check_licence,
    licence_of,
    own_model_folder,
    packaged_models,
    sources_of,
)
from ..loading.hub import is_of_transformers, needs_the_package, write_self_test
from ..loading.models import ModelFolderError, auto_classes_of, find_model_folder, load_config, load_model, task_of
from ..registry import MODEL_TYPES
from ..tasks.registry import TASKS, fingerprints_of, task_class
from ..training.config import TrainingConfig, load_config_of_class, read_yaml
from ..training.output_folder import BEST_SCORES, TRAINING_CONFIG
from ..training.task import Evaluation, Task

PLAIN_CODE = re.compile(r"[\w .,:;=|/+%@~-]+")
MARKUP = re.compile(r"[^\w .,;=+%-]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.", re.IGNORECASE)
"""Characters that could be markup, a table border or a link in Markdown."""
MAX_VALUE = 1_000  # maximum characters of a value in a card
EVALUATIONS = "evaluations.json"
KEYS = re.compile(r",\s*(\w+)\s*=|^\s*(\w+)\s*=")  # the keys in a dataset spec, after the name of the reader
PLACES = ("output_dir", "num_workers", "tracker")  # keys of a training config that describe only the machine


@dataclass(frozen=True)
class RecordedEvaluation:
    """Scores of a model on a split of a dataset."""

    data: str
    split: str
    rows: int | None  # None: unknown, like `seed`
    scores: Mapping[str, float]
    fingerprints: Mapping[str, str]  # the settings that each score depends on
    weights: str  # checksum of the evaluated weights
    seed: int | None = None
    chose_epoch: bool = False  # whether the scores of this split chose the epoch of the model


@dataclass(frozen=True)
class CardFacts:
    """Facts about a model besides its configuration."""

    own_card: str | None = None  # card written by a user; replaces the generated one
    summary: str | None = None  # Markdown that replaces the description from the configuration
    evaluations: Sequence[RecordedEvaluation] = ()  # evaluations of exactly these weights
    other_seeds: Sequence[Sequence[RecordedEvaluation]] = ()  # evaluations of each model with another seed
    training_config: Mapping[str, Mapping] | None = None
    limits: str = ""  # Markdown
    sections: Mapping[str, str] = field(default_factory=dict)  # further Markdown by title
    license: str | None = None  # identifier on the Hub; None: the licence of the sources of the weights
    license_name: str | None = None
    language: str | None = None  # language of the captions, such as "en"


def weight_files_checksum(folder: str | Path) -> str:
    """Returns a checksum of the weights in a model's folder."""
    digest = hashlib.sha256()
    for file in sorted([*Path(folder).glob("[!.]*.safetensors"), *Path(folder).glob("[!.]*.onnx")]):
        digest.update(f"{file.name} {sha256(file)}\n".encode())
    return digest.hexdigest()


def record(
    models: str | Sequence[str], data: str, split: str, evaluation: Evaluation, file: str | os.PathLike | None = None
) -> None:
    """Writes an evaluation of [`~hf_ngsan.tasks.evaluate`] into the model's folder, for its card, or into a file.

    In the folder, it replaces an evaluation of the same rows and settings, and a self-test is also written. Raises a
    ValueError for an ensemble without `file`, because an ensemble has no folder.
    """
    models = [models] if isinstance(models, str) else models
    if file is None and len(models) > 1:
        raise ValueError("The scores of an ensemble cannot be written into the folder of one model; give file=FILE.")
    folder = Path(find_model_folder(models[0]))
    facts: Any = {"rows": evaluation.rows, "scores": dict(evaluation.scores), "fingerprints": evaluation.fingerprints}
    recorded = RecordedEvaluation(data, split, **facts, weights=weight_files_checksum(folder))
    if file is not None:
        write_output(file, json.dumps({"model": models, **asdict(recorded)}, indent=1) + "\n")
    else:
        own_model_folder(models[0])
        kept = [
            other
            for other in read_evaluations(folder)
            if not (is_of_the_same(other, recorded) and other.fingerprints == recorded.fingerprints)
        ]
        write_evaluations(folder, [*kept, recorded])
        write_self_test(*load_model(folder), folder)


def write_evaluations(folder: str | Path, evaluations: Sequence[RecordedEvaluation]) -> None:
    text = json.dumps([asdict(evaluation) for evaluation in evaluations], indent=1) + "\n"
    write_text_atomically(Path(folder) / EVALUATIONS, text)


def read_evaluations(folder: str | Path) -> list[RecordedEvaluation]:
    """Returns the evaluations of the current weights in a folder; those of earlier weights are left out."""
    file = Path(folder) / EVALUATIONS
    entries = json.loads(file.read_bytes()) if file.is_file() else []
    weights = weight_files_checksum(folder) if entries else ""
    return [RecordedEvaluation(**entry) for entry in entries if entry["weights"] == weights]


def is_of_the_same(first: RecordedEvaluation, second: RecordedEvaluation) -> bool:
    """Returns whether two evaluations have the same rows and the same settings of common scores; ignores the seed."""
    common = first.fingerprints.keys() & second.fingerprints.keys()
    has_same_settings = all(first.fingerprints[name] == second.fingerprints[name] for name in common)
    has_same_rows = all(getattr(first, name) == getattr(second, name) for name in ("data", "split", "rows"))
    return has_same_rows and bool(common) and has_same_settings


def has_same_scores(first: RecordedEvaluation, second: RecordedEvaluation) -> bool:
    """Returns whether the common scores are equal up to rounding."""
    common = first.scores.keys() & second.scores.keys()
    return all(math.isclose(first.scores[name], second.scores[name], rel_tol=1e-3, abs_tol=1e-6) for name in common)


def collect_card_facts(model: str | os.PathLike, other_runs: Sequence[str] = (), **attributes: Any) -> CardFacts:
    """Reads the facts for a card from a model's folder, its training run and runs with other seeds.

    `attributes` are other attributes of [`CardFacts`]. Raises a ModelFolderError if another run has another training
    config, or if files of the model are outside of its folder.
    """
    folder = Path(find_model_folder(model))
    refuse_files_elsewhere(folder)
    config, others = config_of(folder), []
    for other in other_runs:
        place = Path(find_model_folder(other))
        other_config = None if run_of(place) is None else config_of(place)
        if config is None or other_config is None or without_seed(other_config) != without_seed(config):
            raise ModelFolderError(f"{other} is not a training run that differs from {model} in training.seed alone.")
        others.append(tuple(evaluations_of(place)))
    return CardFacts(
        own_card=(folder / CARD).read_text(encoding="utf-8") if (folder / CARD).is_file() else None,
        evaluations=tuple(evaluations_of(folder)),
        other_seeds=tuple(others),
        training_config=config,
        **attributes,
    )


def refuse_files_elsewhere(folder: Path) -> None:
    """Refuses links out of an untrusted folder (except to code), and references to weights or models elsewhere."""
    run = run_of(folder)
    run_files = [] if run is None else [folder, run / TRAINING_CONFIG]
    for root, paths in ((folder, folder.rglob("*") if folder.is_dir() else ()), (folder.parent, run_files)):
        for path in paths:
            is_code = path.suffix == ".py" and not path.is_dir()
            if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)) and not is_code:
                raise ModelFolderError(f"{path} is a link out of {root}; put a copy of the file there.")
    for file in [*folder.glob("config.json"), *folder.glob("[!.]*config.json"), *folder.glob("[!.]*.index.json")]:
        for mapping in mappings_in(json.loads(file.read_bytes())):
            elsewhere = [name for name in mapping.get("weight_map", {}).values() if "/" in name or "\\" in name]
            for key, part in INITIALIZED_FROM.items():
                is_saved = mapping.get(part) and mapping.get("save_frozen_weights") is not False
                if mapping.get(key) and not is_saved and os.path.lexists(os.path.expanduser(mapping[key])):
                    elsewhere.append(mapping[key])
            if elsewhere:
                problem = f"{file} names {elsewhere[0]!r:.200}, which is not in this folder"
                raise ModelFolderError(f"{problem}; save the whole model there.")


def mappings_in(value: Any) -> Iterator[dict]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from mappings_in(item)


def config_of(folder: Path) -> dict | None:
    """Returns the training config of a model as YAML values, from its run or folder; None if there is none."""
    config = config_of_run(folder)
    if config is not None:  # drop the settings of the machine
        return {
            name: {key: public(value) for key, value in section.items() if key not in PLACES}
            for name, section in config.to_dict().items()
        }
    file = folder / TRAINING_CONFIG
    return public(read_yaml(file.read_bytes(), str(file))) if file.is_file() else None


def run_of(folder: Path) -> Path | None:
    """Returns the folder of the training run of a model folder; None if there is none."""
    run = folder.absolute().parent
    return run if (run / TRAINING_CONFIG).is_file() else None


def config_of_run(folder: Path) -> TrainingConfig | None:
    """Returns the training config of the run of a model folder; the model determines the task."""
    run = run_of(folder)
    if run is None:
        return None
    task = task_class(str(task_of(load_config(folder))))
    return load_config_of_class(run / TRAINING_CONFIG, (), lambda model: task.config_class)


def evaluations_of(folder: Path) -> list[RecordedEvaluation]:
    """Returns the recorded evaluations of a model, and those of its run if it is the best model of the run."""
    config: Any = config_of_run(folder)
    seed = None if config is None else config.training.seed
    recorded = read_evaluations(folder)
    evaluations = [replace(entry, seed=seed) if entry.seed is None else entry for entry in recorded]
    scores = (read_json_or_none(folder / BEST_SCORES) or {}).get("scores")
    if config is not None and folder.name == "best" and scores:  # the scores that chose the epoch
        written = read_json_or_none(folder / "generation_config.json") or {}
        generation = {name: value for name, value in written.items() if type(value) in (int, float)}
        task = task_class(str(task_of(load_config(folder))))
        run_scores = RecordedEvaluation(
            data=config.data.spec,
            split=config.data.validation_split,
            rows=config.data.limit,
            scores=scores,
            fingerprints=fingerprints_of(task, Evaluation(scores), generation, vars(config.evaluation)),
            weights=weight_files_checksum(folder),
            seed=seed,
            chose_epoch=config.evaluation.metric in scores,
        )
        for other in evaluations[:]:
            if is_of_the_same(replace(other, rows=run_scores.rows), run_scores) and has_same_scores(other, run_scores):
                evaluations.remove(other)
                run_scores = replace(
                    run_scores,
                    scores={**run_scores.scores, **other.scores},
                    fingerprints={**run_scores.fingerprints, **other.fingerprints},
                )
        evaluations.insert(0, run_scores)
    return [replace(evaluation, data=public(evaluation.data)) for evaluation in evaluations]


def without_seed(config: Mapping) -> dict:
    return {**config, "training": {**config["training"], "seed": None}}


def public(value: Any) -> Any:
    """Returns a value of a training config, such as a dataset spec, without the folder names of this machine."""
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [public(item) for item in value]
    if not isinstance(value, str) or is_place(value):
        return Path(value).name if isinstance(value, str) else value
    name, _, text = value.partition(":")
    if not text.strip() or text.startswith("//"):
        return re.sub("(?<==)[^,]+", lambda match: public(match[0]), value)
    keys = dict.fromkeys((first or second for first, second in KEYS.findall(text)), str)
    source = READERS[name].source if name in READERS else "SOURCE"  # a reader that is not imported may have a source
    place, values = parse_spec(value, Reader(name, "", "", (), source, keys))
    if not any(map(is_place, (place, *values.values()))):
        return value
    parts = [place] * bool(source) + [f"{key}={public(part)}" for key, part in values.items()]
    return f"{name}:{','.join([public(part) if is_place(part) else part for part in parts])}"


def is_place(text: str) -> bool:
    place = os.path.expanduser(text)
    return text.startswith(("~", "..")) or os.path.isabs(place) or os.path.exists(place)


def write_card(
    model: PreTrainedModel, folder: Path, repo_id: str, revision: str | None, facts: CardFacts, tags: Sequence[str] = ()
) -> None:
    """Writes the card of the checkpoint `revision`; a user's card without a needed licence is refused."""
    if facts.own_card is None:
        header = card_data(model, repo_id, facts, tags).to_yaml()
        text = f"---\n{header}\n---\n\n{body(model, folder, repo_id, revision, facts)}"
        write_text_atomically(folder / CARD, text)
        return
    write_text_atomically(folder / CARD, facts.own_card)
    licence, stated = licence_of(model.config), metadata_load(folder / CARD) or {}
    for licence_id in stated["license"] if isinstance(stated.get("license"), list) else [stated.get("license")]:
        check_licence(licence_id, stated.get("license_name") if licence_id == "other" else None)
    if licence is not None and not stated.get("license"):
        origin = f"{sources_of(model.config)[0].name}, under {licence.license_name or licence.license}"
        raise ValueError(f"{CARD} states no licence, and the weights come from {origin}; add license to its metadata.")


def card_data(model: PreTrainedModel, repo_id: str, facts: CardFacts, tags: Sequence[str]) -> ModelCardData:
    """Returns the metadata of a card, for display and search on the Hub."""
    task = task_of_model(model)
    own_tags = () if task is None else task.tags
    pipeline_tag = None if task is None else task.pipeline_tag
    results = [
        EvalResult(
            task_type=pipeline_tag or next(iter(own_tags), "other"),
            dataset_type=metadata(evaluation.data),
            dataset_name=metadata(evaluation.data),
            dataset_split=metadata(evaluation.split),
            metric_type=metadata(metric),
            metric_value=round(value, 4),
            metric_name=metadata(metric),
            metric_args={"fingerprint": metadata(evaluation.fingerprints.get(metric, metric))},
        )
        for evaluation in facts.evaluations
        for metric, value in evaluation.scores.items()
    ]
    licence = licence_of_card(model, facts) or Source("")
    bases = [source.name for source in sources_of(model.config) if source.is_public]
    return ModelCardData(
        language=facts.language,
        library_name="transformers",
        pipeline_tag=pipeline_tag,
        license=licence.license,
        license_name=licence.license_name,
        license_link=licence.license_link,
        base_model=bases[0] if len(bases) == 1 else bases or None,
        tags=["hf-ngsan", *own_tags, *tags],
        model_name=repo_id.split("/")[-1] if results else None,
        eval_results=results or None,
    )


def licence_of_card(model: PreTrainedModel, facts: CardFacts) -> Source | None:
    """Returns the licence in `facts`, or else that of the models that the weights come from; None if there is none."""
    return licence_of(model.config) if facts.license is None else Source("", facts.license, facts.license_name)


def task_of_model(model: PreTrainedModel) -> type[Task] | None:
    """Returns the task class of a model; None for a part of a model."""
    task = task_of(model.config)
    return task_class(task) if task in TASKS else None


def body(model: PreTrainedModel, folder: Path, repo_id: str, revision: str | None, facts: CardFacts) -> str:
    """Returns the text of a card from the template `card.md.jinja`."""
    licence = licence_of_card(model, facts)
    task, entry = task_of_model(model), MODEL_TYPES.get(model.config.model_type)
    return template().render(
        facts=facts,
        name=repo_id.split("/")[-1],
        repo_id=repo_id,
        revision=revision,
        is_packaged=repo_id in packaged_models(),
        does="is a part of hf-ngsan models" if task is None else task.does,
        kind=(entry and entry.name) or f"a {model.config.model_type}",
        paper=entry and entry.paper,
        model_class=type(model).__name__,
        parameters=sum(weights.numel() for weights in model.parameters()),
        vocab_size=getattr(model.config, "vocab_size", None),
        usage=usage(model, f'"{repo_id}"' + (f', revision="{revision}"' if revision else "")),
        needs_package=needs_the_package(folder),
        is_of_transformers=is_of_transformers(model),
        evaluations=[(evaluation, *over_seeds(evaluation, facts)) for evaluation in facts.evaluations],
        training=training(model, facts),
        licence=licence and (licence.license_name or licence.license),
        sources=sources_of(model.config),
    )


class Markdown(str):
    """Markdown text from this package, or escaped text."""


@cache
def template() -> jinja2.Template:
    environment = jinja2.Environment(  # nosec B701  # Markdown needs other escapes than HTML
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        finalize=lambda value: value if isinstance(value, Markdown) else plain_text(value),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"code": code, "markdown": Markdown}
    environment.globals |= {"mean": statistics.mean, "stdev": statistics.stdev}
    return environment.get_template("card.md.jinja")


def over_seeds(evaluation: RecordedEvaluation, facts: CardFacts) -> tuple[list, dict[str, list[float]]]:
    """Returns the matching evaluations with other seeds, and the values of each metric, those of the model first."""
    others = [other for seed in facts.other_seeds for other in seed if is_of_the_same(evaluation, other)]
    evaluations = [evaluation, *others]
    scores = [other.scores for other in evaluations]
    return others, {name: [each[name] for each in scores if name in each] for name in evaluation.scores}


def code(value: Any) -> Markdown:
    """Returns any value as Markdown code."""
    text = one_line(value)
    return Markdown(f"`{text}`" if PLAIN_CODE.fullmatch(text) else f"<code>{plain_text(text)}</code>")


def plain_text(value: Any) -> str:
    """Returns a value as Markdown text without markup."""
    return MARKUP.sub(as_entity, one_line(value))


def metadata(value: Any) -> str:
    """Returns a value as text for the metadata of a card; programs may show it as Markdown or HTML."""
    return re.sub(r"[<>`\]]", as_entity, one_line(value))


def as_entity(match: re.Match) -> str:
    return f"&#{ord(match[0])};"


def one_line(value: Any) -> str:
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]} …"


def training(model: PreTrainedModel, facts: CardFacts) -> Iterator[str]:
    """Yields paragraphs about the data, split, seed, settings and progress of the training."""
    if facts.training_config is None:
        yield "The training of this model is not recorded."
        return
    data, settings = facts.training_config.get("data", {}), facts.training_config.get("training", {})
    validation = data.get("validation_split")
    chosen = f" (the best epoch was chosen on the split {plain_text(validation)})" if validation else ""
    yield (
        f"It was trained on {code(data.get('spec'))}, split {plain_text(data.get('train_split'))}{chosen}, with seed "
        f"{plain_text(settings.get('seed'))}. [`{TRAINING_CONFIG}`]({TRAINING_CONFIG}) has every setting: "
        f"`hf-ngsan train --config {TRAINING_CONFIG}` repeats the training."
    )
    start = facts.training_config.get("model", {}).get("init_from")
    if start:
        yield f"It was initialized with the weights of {code(start)}."
    task = task_of_model(model)
    if task is not None:
        yield from task.card_notes(facts.training_config)


def usage(model: PreTrainedModel, place: str) -> str:
    """Returns Python code that loads a model with transformers alone and, for tasks with an example, runs it."""
    task = task_of_model(model)
    lines = None if task is None else task.card_usage(model, place)
    if lines is None:
        config = None if is_of_transformers(model) else model.config
        loader, processor_loader = auto_classes_of(model.config)
        autos = [loader.__name__ if config is None else config.auto_class_of(type(model)) or "AutoModel"]
        if processor_loader is not None:
            autos.append(processor_loader.__name__)
        trust = "" if config is None else ", trust_remote_code=True"
        lines = [f"from transformers import {', '.join(autos)}", ""]
        for variable, name in zip(("model", "processor"), autos, strict=False):
            lines.append(f"{variable} = {name}.from_pretrained({place}{trust})")
    return "\n".join(lines)

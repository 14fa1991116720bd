"""Model cards: what is known of a model, and that nothing else is."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import (
    EvalResult,
    EvalResultEntry,
    ModelCard,
    ModelCardData,
    eval_result_entries_to_yaml,
    parse_eval_result_entries,
)
from transformers import PreTrainedModel

from ..auto import MODEL_TYPES
from ..ground.files import write_text_atomically
from ..ground.messages import one_sentence
from ..loading.hub import needs_the_package
from ..loading.limits import count
from ..tasks.registry import TASKS, task_class
from ..training.output_folder import TRAINING_CONFIG
from ..training.task import Task
from .evaluations import RecordedEvaluation, is_of_the_same

CARD = "README.md"
EVAL_RESULTS = ".eval_results"
TRAINING_CURVE = "training_curve.png"
PLAIN_CODE = re.compile(r"[\w .,:;=|/+%@~-]+")
MARKUP = re.compile(r"[^\w .,;=+%-]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.", re.IGNORECASE)
"""Characters that Markdown could read as markup, a table's border or a link."""
LONGEST_NAME = 60
"""Characters of the name of a file, each of up to four bytes."""
LONGEST_VALUE = 1_000
"""Characters of a value that a card shows."""


@dataclass(frozen=True)
class CardFacts:
    """What is known of a model beside its configuration.

    Attributes:
        own_card: a card that somebody has written, which is taken as it is.
        summary: what the model is, in place of what its configuration says.
        evaluations: of these very weights.
        other_seeds: of each model that was trained the same way from another seed its evaluations.
        training_config: sections of settings.
        history: of each epoch of the training its numbers.
        examples: files of pictures in the folder of the checkpoint, and what the model says of them.
        limits: what the model cannot do, added to what its configuration tells.
        sections: further ones by their titles, as Markdown.
        license: identifier of the Hub, such as "apache-2.0"; None if it is not stated.
        license_name: of a licence that is "other".
        language: of the captions, such as "en".
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


def write_card(
    model: PreTrainedModel, folder: Path, repo_id: str, revision: str | None, facts: CardFacts, tags: Sequence[str] = ()
) -> None:
    """Writes the card of a checkpoint, and its evaluations as the Hub reads them beside the card.

    Args:
        model: what the folder holds.
        folder: of the checkpoint.
        repo_id: where it is to be loaded from.
        revision: what names this very checkpoint there; None leaves it open.
        facts: what is known of the model.
        tags: added to those of the task.
    """
    text = facts.own_card
    if text is None:
        header = card_data(model, repo_id, facts, tags).to_yaml()
        text = f"---\n{header}\n---\n\n{body(model, folder, repo_id, revision, facts)}"
    write_text_atomically(folder / CARD, text)


def write_eval_results(folder: Path, facts: CardFacts) -> None:
    """Writes the evaluations of a checkpoint in the format that superseded `model-index`, a file for each split."""
    for one in facts.evaluations:
        entries = [
            EvalResultEntry(dataset_id=one.data, task_id=metric, value=value, notes=one.fingerprints.get(metric))
            for metric, value in one.scores.items()
        ]
        name = re.sub(r"[^\w.-]+", "-", f"{one.data}-{one.split}").strip("-")[:LONGEST_NAME]
        target = folder / EVAL_RESULTS / f"{name}.yaml"
        earlier = yaml.safe_load(target.read_text(encoding="utf-8")) if target.is_file() else []
        entries_of_all = [*earlier, *eval_result_entries_to_yaml(entries)]
        write_text_atomically(target, yaml.safe_dump(entries_of_all, sort_keys=False))


def card_data(model: PreTrainedModel, repo_id: str, facts: CardFacts, tags: Sequence[str]) -> ModelCardData:
    """Returns the metadata of a card, which the Hub shows and searches."""
    task = task_of(model)
    own_tags = () if task is None else task.tags
    pipeline_tag = None if task is None else task.pipeline_tag
    results = [
        EvalResult(
            task_type=pipeline_tag or next(iter(own_tags), "other"),
            dataset_type=metadata(one.data),
            dataset_name=metadata(one.data),
            dataset_split=metadata(one.split),
            metric_type=metadata(metric),
            metric_value=round(value, 4),
            metric_name=metadata(metric),
            metric_args={"fingerprint": metadata(one.fingerprints[metric])} if metric in one.fingerprints else None,
        )
        for one in facts.evaluations
        for metric, value in one.scores.items()
    ]
    return ModelCardData(
        language=facts.language,
        library_name="transformers",
        pipeline_tag=pipeline_tag,
        license=facts.license,
        license_name=facts.license_name,
        tags=["hf-ngsan", *own_tags, *tags],
        model_name=repo_id.split("/")[-1] if results else None,
        eval_results=results or None,
    )


def task_of(model: PreTrainedModel) -> type[Task] | None:
    """Returns the task that a model belongs to; None for a part of models."""
    entry = MODEL_TYPES.get(model.config.model_type)
    return task_class(entry.task) if entry is not None and entry.task in TASKS else None


def body(model: PreTrainedModel, folder: Path, repo_id: str, revision: str | None, facts: CardFacts) -> str:
    sections = [
        ("", facts.summary or description(model)),
        ("Use", use(model, folder, repo_id, revision)),
        ("Evaluation", "\n\n".join(evaluation(facts))),
        ("Examples", examples(facts)),
        ("Training", "\n\n".join(training(model, facts, (folder / TRAINING_CURVE).is_file()))),
        *facts.sections.items(),
        ("Limits", limits(model, facts)),
        ("Citation", citation(model)),
        ("Licence", licence(facts)),
    ]
    parts = [f"## {title}\n\n{text}" if title else text for title, text in sections if text]
    return f"# {repo_id.split('/')[-1]}\n\n" + "\n\n".join(parts) + "\n"


def description(model: PreTrainedModel) -> str:
    task, entry = task_of(model), MODEL_TYPES.get(model.config.model_type)
    does = "is part of models of hf-ngsan" if task is None else task.does
    name = entry.name if entry is not None and entry.name else f"a {model.config.model_type}"
    of_paper = f" of {entry.paper}" if entry is not None and entry.paper else ""
    size = f"`{type(model).__name__}`, {count(model.parameters()):,} parameters"
    return f"This model {does}. It is {name}{of_paper}: {size}."


def citation(model: PreTrainedModel) -> str:
    entry = MODEL_TYPES.get(model.config.model_type)
    paper = None if entry is None else entry.paper
    return f"```bibtex\n{paper.citation}\n```" if paper and paper.citation else ""


def evaluation(facts: CardFacts) -> Iterator[str]:
    """Yields paragraphs and tables: the scores of these weights, over seeds, and what they depend on."""
    if not facts.evaluations:
        yield "This model has not been evaluated: no scores of it are recorded."
        return
    for one in facts.evaluations:
        others = [other for seed in facts.other_seeds for other in seed if is_of_the_same(one, other)]
        number = f" ({one.rows:,} rows)" if one.rows else ""
        note = " Its scores chose the epoch of this model." if one.chose_epoch else ""
        yield f"On {code(one.data)}, split {plain(one.split)}{number}.{note}"
        if others:
            yield "\n".join(table_over_seeds(one, others))
        else:
            rows = [f"| {plain(name)} | {value:.4f} |" for name, value in one.scores.items()]
            seed = "value" if one.seed is None else f"seed {one.seed}"
            yield "\n".join([f"| metric | {seed} |", "| --- | --- |", *rows])
        fingerprints = [f"- {code(one.fingerprints.get(name, name))}" for name in one.scores]
        yield "\n".join(["Fingerprints:", "", *fingerprints])
    if not any(facts.other_seeds):
        yield "These are scores of one model; how much they differ from seed to seed is not known."
    yield "A fingerprint is what a value depends on beside model and data; compare only values with the same one."


def table_over_seeds(one: RecordedEvaluation, others: Sequence[RecordedEvaluation]) -> Iterator[str]:
    """Yields the lines of a table: values of a model, and mean and standard deviation with those of other seeds."""
    seeds = ", ".join(str(other.seed) for other in (one, *others))
    yield f"| metric | this model (seed {one.seed}) | mean ± std of seeds {seeds} |"
    yield "| --- | --- | --- |"
    for name, value in one.scores.items():
        values = [value, *(other.scores[name] for other in others if name in other.scores)]
        spread = f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
        yield f"| {plain(name)} | {value:.4f} | {spread} |"


def code(value: Any) -> str:
    """Returns a value as code of Markdown, whatever its characters are."""
    text = one_line(value)
    return f"`{text}`" if PLAIN_CODE.fullmatch(text) else f"<code>{plain(text)}</code>"


def plain(value: Any) -> str:
    """Returns a value as text of Markdown, none of which is markup."""
    return MARKUP.sub(as_entity, one_line(value))


def metadata(value: Any) -> str:
    """Returns a value as text of a card's metadata, which programs may show as Markdown or HTML."""
    return re.sub(r"[<>`\]]", as_entity, one_line(value))


def as_entity(found: re.Match) -> str:
    return f"&#{ord(found[0])};"


def one_line(value: Any) -> str:
    text = " ".join("".join(one if one.isprintable() else " " for one in str(value)).split())
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} …"


def examples(facts: CardFacts) -> str:
    rows = [f"| ![]({file}) | {plain(caption)} |" for file, caption in facts.examples.items()]
    return "\n".join(["| image | caption |", "| --- | --- |", *rows]) if rows else ""


def training(model: PreTrainedModel, facts: CardFacts, has_curve: bool) -> Iterator[str]:
    """Yields paragraphs: data, split, seed and settings, and how the training went."""
    if facts.training_config is None:
        yield "How this model was trained is not recorded."
        return
    data, settings = facts.training_config.get("data", {}), facts.training_config.get("training", {})
    chosen = (
        f", its epoch chosen by the split {plain(data['validation_split'])}" if data.get("validation_split") else ""
    )
    yield (
        f"It was trained on {code(data.get('spec'))}, split {plain(data.get('train_split'))}{chosen}, with seed "
        f"{plain(settings.get('seed'))}. [`{TRAINING_CONFIG}`]({TRAINING_CONFIG}) has every setting: "
        f"`hf-ngsan train --config {TRAINING_CONFIG}` repeats the training."
    )
    start = facts.training_config.get("model", {}).get("init_from")
    if start:
        yield f"It began with the weights of {code(start)}."
    task = task_of(model)
    yield from [] if task is None else task.card_notes(facts.training_config)
    if has_curve:
        yield f"![Loss and score by epoch]({TRAINING_CURVE})"


def use(model: PreTrainedModel, folder: Path, repo_id: str, revision: str | None) -> str:
    """Returns how to load a model and run it with transformers alone."""
    place = f'"{repo_id}"' + (f', revision="{revision}"' if revision else "")
    task = task_of(model)
    lines = None if task is None else task.card_usage(model, place)
    if lines is None:
        auto = model.config.auto_class_of(type(model)) or "AutoModel"
        classes = [auto]
        loading = [f"model = {auto}.from_pretrained({place}, trust_remote_code=True)"]
        for processor in ("AutoProcessor", "AutoTokenizer", "AutoImageProcessor"):
            if processor in model.config.remote_classes:
                classes.append(processor)
                loading.append(f"processor = {processor}.from_pretrained({place}, trust_remote_code=True)")
                break
        lines = [f"from transformers import {', '.join(classes)}", "", *loading]
    example = "\n".join(lines)
    if "/" not in repo_id:
        example = f"# {repo_id} is the path of this folder\n{example}"
    trust = "Its code comes with it, so that transformers alone runs it; with `import hf_ngsan` no trust is needed."
    if needs_the_package(folder):
        trust = "Its code comes with it and needs hf-ngsan installed."
    pinned = f" The revision names this very checkpoint, code included: `{revision}`." if revision else ""
    return f"```python\n{example}\n```\n\n{trust}{pinned}"


def limits(model: PreTrainedModel, facts: CardFacts) -> str:
    sentences = [facts.limits] if facts.limits else []
    if getattr(model.config, "vocab_size", None):
        sentences.append(f"It has a vocabulary of {model.config.vocab_size:,} tokens and no other words.")
    sentences.append("On other data than it was trained on it may be wrong without a sign.")
    return " ".join(sentences)


def licence(facts: CardFacts) -> str:
    name = facts.license_name or facts.license
    weights = f"The weights are under {code(name)}." if name else "No licence of the weights is stated."
    return f"{weights} The code is under Apache-2.0."


def check_card(folder: Path) -> None:
    """Raises a ValueError unless the card of a folder is one that the Hub reads, by `huggingface_hub`'s own classes."""
    try:
        ModelCard.load(folder / CARD)
        for file in sorted((folder / EVAL_RESULTS).glob("*.yaml")):
            parse_eval_result_entries(yaml.safe_load(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ValueError(f"{folder} has no card ({CARD}).") from None
    except Exception as error:  # YAML's errors are of many types
        raise ValueError(f"{folder / CARD} is no model card ({one_sentence(error)}).") from error

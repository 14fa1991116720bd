"""Model cards: facts about a model, and a clear statement about missing facts.

The template `card.md.jinja` has the text; it escapes every value that it does not mark as Markdown.
"""

import re
import statistics
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCardData, metadata_load
from transformers import PreTrainedModel

from ..data.errors import DataError
from ..io.files import write_text_atomically
from ..io.packaged import CARD, Source, licence_of, packaged_models, sources_of
from ..loading.hub import is_of_transformers, needs_the_package
from ..loading.models import auto_classes_of, task_of
from ..models.image_processing_captioning import load_image
from ..registry import MODEL_TYPES
from ..tasks.caption_rows import COLUMNS_READ, load_rows, rows_for
from ..tasks.captioning_generation import caption_images
from ..tasks.registry import TASKS, task_class
from ..training.output_folder import TRAINING_CONFIG
from ..training.task import Task
from .facts import CardFacts, RecordedEvaluation, is_of_the_same

TRAINING_CURVE = "training_curve.png"
PLAIN_CODE = re.compile(r"[\w .,:;=|/+%@~-]+")
MARKUP = re.compile(r"[^\w .,;=+%-]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.", re.IGNORECASE)
"""Characters that could be markup, the border of a table or a link in Markdown."""
MAX_VALUE = 1_000
"""Characters of a value that a card shows."""
EXAMPLES, NUM_EXAMPLES = "examples", 4
MAX_SIDE = 384
"""Longest side of an example in pixels."""


def write_card(
    model: PreTrainedModel, folder: Path, repo_id: str, revision: str | None, facts: CardFacts, tags: Sequence[str] = ()
) -> None:
    """Writes the card of a checkpoint.

    Args:
        model, folder: of the checkpoint.
        repo_id, revision: repository and name of exactly this checkpoint in the card's usage; None leaves it open.
        facts: facts about the model besides its configuration.
        tags: tags besides those of the task.

    Raises:
        ValueError: a user's card states no licence, and the models that the weights come from have evaluation.
    """
    if facts.own_card is None:
        header = card_data(model, repo_id, facts, tags).to_yaml()
        text = f"---\n{header}\n---\n\n{body(model, folder, repo_id, revision, facts)}"
        write_text_atomically(folder / CARD, text)
        return
    write_text_atomically(folder / CARD, facts.own_card)
    licence = licence_of(model.config)
    if licence is not None and not (metadata_load(folder / CARD) or {}).get("license"):
        raise ValueError(
            f"{CARD} states no licence, and the weights come from {sources_of(model.config)[0].name}, under "
            f"{licence.license_name or licence.license}; add the field license to the metadata at its top."
        )


def card_data(model: PreTrainedModel, repo_id: str, facts: CardFacts, tags: Sequence[str]) -> ModelCardData:
    """Returns the metadata of a card, which the Hub shows and searches."""
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
            metric_args={"fingerprint": metadata(evaluation.fingerprints[metric])}
            if metric in evaluation.fingerprints
            else None,
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
    """Returns the licence that is given, else that of the models that the weights come from; None without any."""
    return licence_of(model.config) if facts.license is None else Source("", facts.license, facts.license_name)


def task_of_model(model: PreTrainedModel) -> type[Task] | None:
    """Returns the class of the task of a model; None for a part of models."""
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
        does="is part of models of hf-ngsan" if task is None else task.does,
        kind=(entry and entry.name) or f"a {model.config.model_type}",
        paper=entry and entry.paper,
        model_class=type(model).__name__,
        parameters=sum(weights.numel() for weights in model.parameters()),
        vocab_size=getattr(model.config, "vocab_size", None),
        usage=usage(model, f'"{repo_id}"' + (f', revision="{revision}"' if revision else "")),
        needs_package=needs_the_package(folder),
        is_of_transformers=is_of_transformers(model),
        evaluations=[(evaluation, *over_seeds(evaluation, facts)) for evaluation in facts.evaluations],
        training=training(model, facts, (folder / TRAINING_CURVE).is_file()),
        licence=licence and (licence.license_name or licence.license),
        sources=sources_of(model.config),
    )


class Markdown(str):
    """Text of this package, or escaped text; it may have markup."""


@cache
def template() -> jinja2.Template:
    environment = jinja2.Environment(  # nosec B701  # HTML's rules of escaping are not Markdown's
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        finalize=lambda value: value if isinstance(value, Markdown) else plain(value),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"code": code, "markdown": Markdown}
    environment.globals |= {"mean": statistics.mean, "stdev": statistics.stdev}
    return environment.get_template("card.md.jinja")


def over_seeds(evaluation: RecordedEvaluation, facts: CardFacts) -> tuple[list, dict[str, list[float]]]:
    """Returns the evaluations with other seeds that match it, and the values of each metric, the model's own first."""
    others = [other for seed in facts.other_seeds for other in seed if is_of_the_same(evaluation, other)]
    evaluations = [evaluation, *others]
    return others, {
        name: [each.scores[name] for each in evaluations if name in each.scores] for name in evaluation.scores
    }


def code(value: Any) -> Markdown:
    """Returns a value of any characters as code of Markdown."""
    text = one_line(value)
    return Markdown(f"`{text}`" if PLAIN_CODE.fullmatch(text) else f"<code>{plain(text)}</code>")


def plain(value: Any) -> str:
    """Returns a value as text of Markdown without markup."""
    return MARKUP.sub(as_entity, one_line(value))


def metadata(value: Any) -> str:
    """Returns a value as text of a card's metadata, which programs may show as Markdown or HTML."""
    return re.sub(r"[<>`\]]", as_entity, one_line(value))


def as_entity(match: re.Match) -> str:
    return f"&#{ord(match[0])};"


def one_line(value: Any) -> str:
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]} …"


def training(model: PreTrainedModel, facts: CardFacts, has_curve: bool) -> Iterator[str]:
    """Yields paragraphs about data, split, seed, settings and progress of the training."""
    if facts.training_config is None:
        yield "How this model was trained is not recorded."
        return
    data, settings = facts.training_config.get("data", {}), facts.training_config.get("training", {})
    validation = data.get("validation_split")
    chosen = f", its epoch chosen by the split {plain(validation)}" if validation else ""
    yield (
        f"It was trained on {code(data.get('spec'))}, split {plain(data.get('train_split'))}{chosen}, with seed "
        f"{plain(settings.get('seed'))}. [`{TRAINING_CONFIG}`]({TRAINING_CONFIG}) has every setting: "
        f"`hf-ngsan train --config {TRAINING_CONFIG}` repeats the training."
    )
    start = facts.training_config.get("model", {}).get("init_from")
    if start:
        yield f"It began with the weights of {code(start)}."
    task = task_of_model(model)
    if task is not None:
        yield from task.card_notes(facts.training_config)
    if has_curve:
        yield f"![Loss and score by epoch]({TRAINING_CURVE})"


def usage(model: PreTrainedModel, place: str) -> str:
    """Returns Python that loads a model with transformers alone, and runs it if its task has such lines."""
    task = task_of_model(model)
    lines = None if task is None else task.card_usage(model, place)
    if lines is None and is_of_transformers(model):
        auto = auto_classes_of(model.config)[0].__name__
        lines = [f"from transformers import {auto}, AutoProcessor", ""]
        lines += [f"model = {auto}.from_pretrained({place})", f"processor = AutoProcessor.from_pretrained({place})"]
    elif lines is None:
        auto = model.config.auto_class_of(type(model)) or "AutoModel"
        processors = ("AutoProcessor", "AutoTokenizer", "AutoImageProcessor")
        processor = [name for name in processors if name in model.config.remote_classes][:1]
        lines = [f"from transformers import {', '.join([auto, *processor])}", ""]
        for variable, name in zip(("model", "processor"), (auto, *processor), strict=False):
            lines.append(f"{variable} = {name}.from_pretrained({place}, trust_remote_code=True)")
    return "\n".join(lines)


def write_examples(model: PreTrainedModel, processor: Any, spec: str, folder: Path) -> dict[str, str]:
    """Writes the first images of a dataset's test split, reduced, and returns captions by path in the folder."""
    rows = load_rows(spec, "test", with_captions=False, limit=NUM_EXAMPLES)
    rows = rows_for(model, processor, rows, spec, keep_images=True)
    if "image" not in rows.column_names:
        raise DataError(f"{spec} has no images for the card; name a dataset with images, such as scenes:images=true.")
    read = rows.select_columns([name for name in COLUMNS_READ if name in rows.column_names])
    captions = caption_images(model, processor, read, map(str, rows["image_id"]))
    (folder / EXAMPLES).mkdir(parents=True, exist_ok=True)
    examples = {}
    for row, captioned in zip(rows, captions, strict=True):
        image, name = load_image(row["image"]), f"{EXAMPLES}/{row['image_id']}.png"
        image.thumbnail((MAX_SIDE, MAX_SIDE))
        image.save(folder / name)
        examples[name] = captioned.caption or ""
    return examples

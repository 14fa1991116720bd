"""The tasks by name, and functions for models of any task; the model type determines the task."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import PreTrainedModel

from ..io.processes import make_accelerator
from ..languages import language_of
from ..loading.engines import use_engine
from ..loading.models import ModelFolderError, is_guest, load_config, task_of
from ..models.attention_maps import evaluation_mode
from ..registry import MODEL_TYPES
from ..training.config import ConfigError, TrainingConfig, load_config_of_class, suggestion
from ..training.run import TrainingResult, load_split, run_task
from ..training.task import Evaluation, InputRoles, Task
from .settings import OF_NEW_MODELS

TASKS: dict[str, str | type[Task]] = {
    "captioning": "hf_ngsan.tasks.captioning:CaptioningTask",
    "retrieval": "hf_ngsan.tasks.retrieval:RetrievalTask",
    "language_modeling": "hf_ngsan.tasks.language_modeling:LanguageModelingTask",
    "translation": "hf_ngsan.tasks.translation:TranslationTask",
    "visual_question_answering": "hf_ngsan.tasks.question_answering:VisualQuestionAnsweringTask",
}
DEFAULT_TASK = "captioning"


def register_task(name: str, task: type[Task]) -> None:
    """Adds a task; model types that are registered with its name belong to it."""
    TASKS[name] = task


def task_class(name: str) -> type[Task]:
    """Returns the class of a task by its name."""
    task = TASKS[name]
    return resolve_name(task) if isinstance(task, str) else task


def task_class_of(model: Mapping) -> type[Task]:
    """Returns the task class for the section `model` of a training config."""
    model_type = model.get("model_type")
    if "init_from" in model and model_type is None:
        config = load_config(model["init_from"])
        model_type, task = config.model_type, task_of(config)
        if task in TASKS:
            return task_class(task)
    if model_type is None:
        return task_class(DEFAULT_TASK)
    known = {name: entry.task for name, entry in MODEL_TYPES.items() if entry.task in TASKS}
    if model_type not in known:
        raise ConfigError(f"model.model_type: unknown model type {model_type!r}{suggestion(model_type, known)}")
    return task_class(known[model_type])


def load_training_config(path: str | os.PathLike, overrides: Iterable[str] = ()) -> TrainingConfig:
    """Reads a training config with the class of its task; see [`~hf_ngsan.training.config.load_config_of_class`]."""
    overrides = list(overrides)
    config = load_config_of_class(path, overrides, lambda model: task_class_of(model).config_class)
    useless = {f"data.{key}" for key in OF_NEW_MODELS}.intersection(text.partition("=")[0] for text in overrides)
    if useless and "init_from" in config.model:
        raise ConfigError(f"{min(useless)} has no effect: a trained model keeps its vocabulary. Leave it out.")
    return config


def train(config: TrainingConfig, *, resume: bool = False, overwrite: bool = False) -> TrainingResult:
    """Trains the model that a training config describes; see [`~hf_ngsan.training.run.run_task`]."""
    config = type(config).from_dict(config.to_dict())  # checks a config that was made in Python, like one of a file
    return run_task(task_class_of(config.model)(config), resume=resume, overwrite=overwrite)


def evaluate(
    models: str | Sequence[str],
    data: str,
    split: str = "test",
    *,
    limit: int | None = None,
    batch_size: int = 64,
    engine: str = "torch",
    **options: Any,
) -> Evaluation:
    """Scores a model, or an ensemble, of any task on a split of a dataset, exactly as during training.

    ```python
    evaluation = evaluate("runs/scenes", "scenes", num_beams=3)
    evaluation.scores["cider_d"]
    evaluation.save("captions.json")
    ```

    Args:
        models: folder of a model, or name on the Hub; or several captioners as an ensemble.
        data: a dataset, see [`~hf_ngsan.data.load_data`]; `limit` restricts it to the first rows.
        engine: see [`~hf_ngsan.loading.use_engine`].
        options: options of the task's `evaluate`, such as `metrics`, and arguments of `generate()`.

    Raises:
        ValueError: a model has no task or another task, the rows do not match it, or an option is invalid.
    """
    models = [models] if isinstance(models, str) else models
    config = load_config(models[0])
    name = str(task_of(config))
    if name not in TASKS:
        raise ModelFolderError(f"{models[0]} is a {config.model_type} model, which cannot be evaluated.")
    kind, accelerator = task_class(name), make_accelerator()
    if len(models) > 1 and not kind.can_ensemble:
        raise ValueError(f"{models[0]} is {kind.model_noun}, which cannot be in an ensemble; give one model.")
    model: Any
    model, processor = kind.load(models, name)
    use_engine(model.to(accelerator.device), processor, engine)
    sections = {
        "model": {"init_from": models[0]},
        "data": {"spec": data, "limit": limit},
        "evaluation": {"batch_size": batch_size},
    }
    task = kind(kind.config_class.from_dict(sections, "the evaluation"))
    rows = task.evaluation_rows(model, processor, load_split(task.load_rows, split, data))
    evaluation = task.evaluate_all(model, processor, rows, accelerator, **options)
    generation: Any = getattr(model, "generation_config", None)
    settings = {} if generation is None else generation.to_dict()
    options = {"language": language_of(getattr(processor, "tokenizer", None)), **options}
    return replace(evaluation, rows=len(rows), fingerprints=fingerprints_of(kind, evaluation, settings, options))


def fingerprints_of(task: type[Task], evaluation: Evaluation, generation: Mapping, options: Mapping) -> dict[str, str]:
    """Returns the settings that each score depends on, such as `cider_d|beams:3|max:20|tok:ptb|hf-ngsan:0.1.0`."""
    fingerprints = {}
    for metric in evaluation.scores:
        settings = {
            **task.comparable_settings(metric, generation, options),
            "signature": evaluation.signatures.get(metric),
        }
        parts = [f"{name}:{value}" for name, value in settings.items() if value is not None]
        fingerprints[metric] = "|".join([metric, *parts, f"hf-ngsan:{version('hf-ngsan')}"])
    return fingerprints


TOLERANCE = 1e-5  # allowed change of a log-probability: rounding in float32
ROWS, WORDS, REGIONS, SIDE, PADDED = 3, 7, 7, 3, 2  # sizes of random inputs; SIDE: grid cells per side


@dataclass(frozen=True)
class Finding:
    """The effect of a change of inputs on log-probabilities that must not depend on it."""

    name: str  # name of the contract, such as "later words"
    statement: str  # beginning of a sentence about the change
    change: float | None  # largest change of a log-probability; None if the contract does not apply

    @property
    def holds(self) -> bool:
        return self.change is None or self.change <= TOLERANCE

    def __str__(self) -> str:
        if self.change is None:
            return f"n/a    {self.name}: {self.statement}"
        verdict = "holds" if self.holds else "LEAKS"
        return f"{verdict}  {self.name}: {self.statement} by {self.change:.1e} at most."


def audit_model(model: PreTrainedModel, seed: int = 0) -> list[Finding]:
    """Checks the dependence of log-probabilities of a captioner, translator or language model on random inputs.

    No log-probability may change by more than 1e-5 if later words, padding (of words and of the source), the other rows
    of the batch or the order of regions change, or if decoding is step by step instead of teacher forcing.
    """
    config: Any = model.config
    task = task_of(config)
    roles = task_class(task).input_roles if task in TASKS and not is_guest(config) else None
    if roles is None:
        raise ValueError(f"The audit needs a text-generating model of this package, not a {config.model_type} model.")
    inputs = random_inputs(config, roles, torch.Generator().manual_seed(seed))
    inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    findings = []
    with evaluation_mode(model), torch.inference_mode():
        for name, statement, changes in leaks(model, roles, inputs):
            largest = torch.stack([change.abs().max() for change in changes]).max().item() if changes else None
            findings.append(Finding(name, statement, largest))
    return findings


def random_inputs(config: Any, roles: InputRoles, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Returns random words without padding, and sources; all rows except the first have padding in the source."""
    start = getattr(config, "decoder_start_token_id", None)
    start = config.bos_token_id if start is None else start
    words = torch.randint(0, config.vocab_size, (ROWS, min(WORDS, config.max_position_embeddings)), generator=generator)
    words[words == config.pad_token_id] = start
    words[:, 0] = start
    inputs = {roles.words: words, roles.word_mask: torch.ones_like(words)}
    if roles.draw_source is None or roles.source_mask is None:
        return inputs
    rows, columns = getattr(config, "grid_size", None) or (SIDE, SIDE)
    number = rows * columns if getattr(config, "order_of_tokens_counts", False) else REGIONS
    mask = torch.ones(ROWS, number, dtype=torch.long)
    mask[1:, -PADDED:] = 0
    return {**inputs, **roles.draw_source(config, (ROWS, number), generator), roles.source_mask: mask}


Change = tuple[str, str, list[torch.Tensor]]
"""Name, beginning of a sentence, and changes of log-probabilities of a contract; none if it does not apply."""


def leaks(model: Any, roles: InputRoles, inputs: dict[str, torch.Tensor]) -> Iterator[Change]:
    """Yields the changes of each contract of a model."""
    words, mask = inputs[roles.words], inputs[roles.word_mask]

    def scores(**changed: torch.Tensor) -> torch.Tensor:
        return model(**{**inputs, **changed}, use_cache=False).logits.float().log_softmax(-1)

    expected, changes = scores(), []
    for position in range(1, words.shape[1]):
        changed = words.clone()
        changed[:, position] = words[:, position].roll(1)
        changed[:, position + 1 :] = words[:, position + 1 :].flip(1)
        changes.append((scores(**{roles.words: changed}) - expected)[:, :position])
    yield "later words", "a later word changes earlier predictions", changes

    changes = []
    for before, after in ((0, PADDED), (PADDED, 0)):
        padded = pad(words, (before, after), value=model.config.pad_token_id)
        padded_scores = scores(**{roles.words: padded, roles.word_mask: pad(mask, (before, after))})
        changes.append(padded_scores[:, before : before + words.shape[1]] - expected)
    yield "padded words", "padding changes predictions", changes

    yield from leaks_of_source(model, roles, inputs, scores, expected)
    cache, logits = None, []
    for end in range(1, words.shape[1] + 1):
        step = {roles.words: words[:, end - 1 : end], roles.word_mask: mask[:, :end]}
        outputs = model(**{**inputs, **step}, cache=cache, use_cache=True)
        cache = outputs.cache
        logits.append(outputs.logits)
    stepwise = torch.cat(logits, dim=1).float().log_softmax(-1)
    yield "step by step", "decoding with a cache differs from teacher forcing", [stepwise - expected]


def leaks_of_source(
    model: Any, roles: InputRoles, inputs: dict[str, torch.Tensor], scores: Any, expected: torch.Tensor
) -> Iterator[Change]:
    source = list(roles.source)
    masked_source = [*source, *filter(None, [roles.source_mask])]
    is_grid = getattr(model.config, "order_of_tokens_counts", False)
    if source:
        padding, other = inputs[roles.source_mask or ""] == 0, {}
        for name in source:
            tensor = inputs[name]
            if tensor.is_floating_point():
                other[name] = tensor.masked_fill(padding[..., None], 0.9)
            else:
                other[name] = torch.where(padding, tensor.roll(1, dims=1), tensor)
        changes = [scores(**other) - expected]
        if not is_grid:  # a grid has a fixed number of cells
            without = {name: tensor[1:] for name, tensor in inputs.items()}
            without |= {name: without[name][:, :-PADDED] for name in masked_source}
            changes.append(scores(**without) - expected[1:])
        yield f"padded {roles.source_name}", "padding changes predictions", changes

    swapped = {name: torch.cat([tensor[:1], tensor[1:].flip(0)]) for name, tensor in inputs.items()}
    for name in source:
        if swapped[name].is_floating_point():
            swapped[name][1:] = 1 - swapped[name][1:]
    alone = scores(**{name: tensor[:1] for name, tensor in inputs.items()})
    changes = [scores(**swapped)[:1] - expected[:1], alone - expected[:1]]
    yield f"other {roles.rows_name} of the batch", f"the other {roles.rows_name} change predictions", changes

    if is_grid:
        yield "order of regions", "the visual tokens are a grid, and their order is their position.", []
    elif roles.source_is_a_set:
        turned = scores(**{name: inputs[name].flip(1) for name in masked_source})
        yield "order of regions", "the order of regions changes predictions", [turned - expected]

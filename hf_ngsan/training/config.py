"""The training config of a run: typed sections from YAML, with `base` files and `key=value` overrides.

```yaml
base: ngsan/scenes
training:
  epochs: 20
with_lora: {training.learning_rate: 1.0e-4}
```

The section `with_lora` has values for the case that adapters are trained (`lora.rank` is set), unless an override, or a
file that names this one as its `base`, sets the key.
"""

import dataclasses
import difflib
import operator
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml

from ..io import MAX_INTEGER
from ..io.files import write_text_atomically
from ..io.packaged import find_config
from ..models.configuration_contrastive import ContrastiveSettings as ContrastiveSettings  # one of the sections

WITH_LORA = "with_lora"
RUN_HEADER = "# The training config of this run: hf-ngsan train --config THIS-FILE repeats it."
SCHEDULES = ("step", "cosine", "inverse_sqrt", "constant")
SWITCH = ("true", "false", "auto")
LIMITS = {"minimum": ("at least", operator.ge), "maximum": ("at most", operator.le), "below": ("below", operator.lt)}


class ConfigError(ValueError):
    """A training config that cannot be used; the message names the file and the key and says what to do."""


def setting(default: Any, help: str, *, free_on_resume: bool = False, **bounds: Any) -> Any:
    """Returns a key of a training config: default, explanation, and whether a resumed run may change it.

    Bounds are `choices`, `minimum`, `maximum` and `below`.
    """
    return field(default=default, metadata={"help": help, "free_on_resume": free_on_resume, **bounds})


@dataclass(frozen=True)
class DataSettings:
    """Rows for training and evaluation."""

    spec: str = setting("scenes", "dataset; hf-ngsan datasets lists the kinds of datasets")
    train_split: str = setting("train", "split that is trained on")
    validation_split: str | None = setting(
        "validation", "chooses the best model; a tenth of train if absent; null = none"
    )
    limit: int | None = setting(None, "rows used of each split, the first ones; null = all", minimum=1)
    num_workers: int = setting(0, "processes that prepare batches; 0 = the main one", minimum=0, free_on_resume=True)


@dataclass(frozen=True)
class ScheduleSettings:
    """Length of a stage of training, and its learning rate."""

    epochs: int = setting(15, "passes over the training split", minimum=1, free_on_resume=True)
    early_stopping_patience: int | None = setting(
        None, "evaluations without a new best that end the stage; null = never", minimum=1, free_on_resume=True
    )
    learning_rate: float = setting(3e-4, "peak learning rate of Adam", minimum=0.0, free_on_resume=True)
    schedule: str = setting("step", "step, cosine, inverse_sqrt or constant, after the warm-up", choices=SCHEDULES)
    warmup_epochs: int = setting(3, "epoch t has learning_rate * min(t / warmup_epochs, 1)", minimum=0)
    warmup_updates: int | None = setting(None, "inverse_sqrt: updates to the peak; null = by warmup_epochs", minimum=1)
    decay_start: int = setting(6, "step schedule: last epoch before the first decay", minimum=0)
    decay_every: int = setting(3, "step schedule: epochs from one decay to the next", minimum=1)
    decay_factor: float = setting(0.5, "step schedule: factor of one decay", minimum=0.0)
    max_decays: int | None = setting(None, "step schedule: decays at most; null = any number", minimum=0)


@dataclass(frozen=True)
class TrainingSettings(ScheduleSettings):
    """Optimization, saving and logging."""

    output_dir: str | None = setting(None, "folder of the run; null = runs/NAME-OF-THE-YAML", free_on_resume=True)
    seed: int = setting(0, "seed of weights, order of rows, random choices and dropout", minimum=0, maximum=MAX_INTEGER)
    batch_size: int = setting(50, "rows per update, all processes and accumulation steps together", minimum=1)
    drop_last: bool = setting(False, "leave out the last batch of an epoch if it is not full")
    gradient_accumulation_steps: int = setting(1, "parts of a batch, to save memory", minimum=1, free_on_resume=True)
    freeze: tuple[str, ...] = setting((), "modules, parameters, or patterns like *.bias that are not trained")
    vision_learning_rate: float | None = setting(None, "peak of a vision encoder; null = learning_rate", minimum=0.0)
    adam_betas: tuple[float, float] = setting((0.9, 0.98), "decay of Adam's two averages")
    adam_epsilon: float = setting(1e-8, "Adam's epsilon", minimum=0.0)
    weight_decay: float = setting(0.0, "decoupled weight decay, of norms and biases too", minimum=0.0)
    max_grad_norm: float | None = setting(
        None, "gradients are clipped to it; null = no", minimum=0, free_on_resume=True
    )
    ema_decay: float = setting(0.0, "average of the weights that is evaluated and saved; 0 = off", minimum=0, below=1)
    mixed_precision: str | None = setting(
        None, "fp16, bf16, auto = bf16 where the device computes in it, null = none", choices=("fp16", "bf16", "auto")
    )
    compile: str = setting("false", "torch.compile the training step; auto = on a GPU", choices=SWITCH)
    cache_on_device: str = setting(
        "false", "features go to the device once; auto = to a GPU with room", choices=SWITCH, free_on_resume=True
    )
    num_threads: int | None = setting(None, "CPU threads of each process; null = PyTorch decides", minimum=1)
    save_every_steps: int | None = setting(
        None, "updates between checkpoints, beside those of epochs; null = none", minimum=1, free_on_resume=True
    )
    keep_checkpoints: int = setting(2, "resumable checkpoints kept; older ones go", minimum=1, free_on_resume=True)
    log_every: int = setting(50, "updates between two points in the tracker", minimum=1, free_on_resume=True)
    tracker: str | None = setting("tensorboard", "a tracker of Accelerate; null = none", free_on_resume=True)


@dataclass(frozen=True)
class EvaluationSettings:
    """Evaluation and the choice of the best model."""

    every_epochs: int = setting(1, "epochs between evaluations; the last one is always evaluated", minimum=1)
    metric: str = setting("loss", "score of the validation split that chooses the best model")
    batch_size: int = setting(64, "rows evaluated together in one process", minimum=1, free_on_resume=True)


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adapters (Hu et al. 2022) for models of transformers: W becomes W + alpha / rank * B A."""

    rank: int | None = setting(None, "rows of A; null = no adapters, the weights themselves are trained", minimum=1)
    alpha: float = setting(16.0, "scale of the adapters, divided by rank", minimum=0.0)
    dropout: float = setting(0.0, "dropout of the inputs of A", minimum=0.0, below=1.0)
    target_modules: tuple[str, ...] = setting((), "ends of the names of linear layers; [] = all but the output layer")


@dataclass(frozen=True)
class DistillationSettings(ScheduleSettings):
    """Settings of the stage `distill`; section `training` has the batch and the teachers."""

    images: str | None = setting(None, "dataset of the training images, captions or not; null = data.spec")
    samples_per_image: int = setting(5, "captions drawn for each image", minimum=1)
    temperature: float = setting(1.0, "logits are divided by this before sampling", minimum=1e-3)
    max_new_tokens: int = setting(20, "longest sample in tokens, its end included", minimum=1)


@dataclass(frozen=True)
class SelfCriticalSettings(ScheduleSettings):
    """Settings of the stage `scst`: how captions are drawn, rewarded and compared; section `training` has the batch."""

    decoding: str = setting("sample", "how captions are drawn: sample or beam", choices=("sample", "beam"))
    samples_per_image: int = setting(5, "captions drawn for each image; the width of the beam search", minimum=1)
    temperature: float = setting(1.0, "logits are divided by this before sampling", minimum=1e-3)
    top_p: float = setting(1.0, "sampling keeps the likeliest words with this probability; 1 = all", minimum=1e-3)
    max_new_tokens: int = setting(20, "longest sample in tokens, its end included", minimum=1)
    baseline: str = setting(
        "leave_one_out", "a reward: greedy, mean or leave_one_out", choices=("greedy", "mean", "leave_one_out")
    )
    dropout: bool = setting(False, "log-probabilities are taken with dropout; captions are drawn without it")
    freeze_encoder: bool = setting(False, "only the decoder is trained, which is faster")
    cider_d_weight: float = setting(1.0, "weight of CIDEr-D (0 to 10) in the reward", minimum=0.0)
    bleu_4_weight: float = setting(0.0, "weight of the sentence's BLEU-4 (0 to 1) in the reward", minimum=0.0)
    meteor_weight: float = setting(0.0, "weight of METEOR (0 to 1) in the reward; needs the extra eval", minimum=0.0)
    clip_score_model: str | None = setting(None, "dual encoder whose CLIPScore (0 to 2.5) is a reward; null = none")
    clip_score_weight: float = setting(1.0, "weight of that CLIPScore in the reward", minimum=0.0)
    end_token_in_reward: bool = setting(True, "the end token is a word in CIDEr-D, BLEU-4 and document frequencies")
    bad_ending_penalty: float = setting(0.0, "off the reward of an ending like 'a' or 'of', or of none", minimum=0.0)
    reward_function: str | None = setting(None, "package.module:function of (captions, references); null = none")
    reward_function_weight: float = setting(1.0, "weight of that function in the reward")


@dataclass(frozen=True)
class TrainingConfig:
    """A training config: everything that a training run depends on.

    A task subclasses it, with its own settings classes or defaults for the sections, and with sections of its own.

    Attributes:
        model: `model_type` and the fields of its configuration; or `init_from`, a folder of a trained model, and the
            configuration fields to change in it.
        data, training, evaluation, lora: the other sections.
    """

    default_model_type: ClassVar[str | None] = None

    model: dict = field(default_factory=dict)
    data: DataSettings = DataSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    lora: LoraSettings = LoraSettings()

    def __post_init__(self) -> None:
        chosen = "init_from" in self.model or self.model.get("model_type") is not None
        if self.default_model_type is not None and not chosen:
            fields = {key: value for key, value in self.model.items() if key != "model_type"}
            object.__setattr__(self, "model", {"model_type": self.default_model_type, **fields})

    @classmethod
    def sections(cls) -> dict[str, type]:
        """Returns the settings classes of all sections but `model`."""
        kinds = typing.get_type_hints(cls)
        return {entry.name: kinds[entry.name] for entry in dataclasses.fields(cls) if entry.name != "model"}

    @classmethod
    def from_dict(cls, sections: Mapping, where: str = "the training config") -> Self:
        """Returns the training config of nested mappings; a ConfigError names a wrong section, key or value."""
        kinds = cls.sections()
        for name in sections:
            if name not in kinds and name != "model":
                raise ConfigError(f"{where}: unknown section {name!r}{suggestion(name, ['model', *kinds])}")
        defaults = cls()
        parsed = {
            name: dataclasses.replace(getattr(defaults, name), **parse_section(name, kind, sections[name], where))
            for name, kind in kinds.items()
            if name in sections
        }
        return cls(model=dict(sections.get("model", {})), **parsed)

    def to_dict(self) -> dict:
        return dataclasses.asdict(self)

    @property
    def output_dir(self) -> Path:
        return Path(os.path.expanduser(self.training.output_dir or "runs/model"))

    def changes_that_break_resuming(self, new: Self) -> list[str]:
        """Returns the changed keys that a resumed run may not change; `epochs` is one of a cosine schedule only."""
        keys = sorted({*self.model, *new.model})
        changed = [f"model.{key}" for key in keys if self.model.get(key) != new.model.get(key)]
        for section, kind in self.sections().items():
            before, after = getattr(self, section), getattr(new, section)
            for entry in dataclasses.fields(kind):
                free = entry.metadata["free_on_resume"]
                if entry.name == "epochs" and "cosine" in (before.schedule, after.schedule):
                    free = False
                if not free and getattr(before, entry.name) != getattr(after, entry.name):
                    changed.append(f"{section}.{entry.name}")
        return changed


def parse_section(section: str, kind: type, values: Mapping, where: str) -> dict[str, Any]:
    settings = {entry.name: entry for entry in dataclasses.fields(kind)}
    annotations = typing.get_type_hints(kind)
    parsed = {}
    for key, value in values.items():
        if key not in settings:
            raise ConfigError(f"{where}: unknown key {section}.{key}{suggestion(key, settings, section)}")
        parsed[key] = check_value(value, annotations[key], settings[key].metadata, f"{where}: {section}.{key}")
    return parsed


def check_value(value: Any, annotation: Any, bounds: Mapping, where: str) -> Any:
    optional = False
    if isinstance(annotation, types.UnionType):
        parts = typing.get_args(annotation)
        optional = types.NoneType in parts
        if optional and value is None:
            return None
        annotation = next(part for part in parts if part is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        kinds = typing.get_args(annotation)
        if kinds[-1] is Ellipsis and isinstance(value, list | tuple):
            kinds = kinds[:1] * len(value)
        if not isinstance(value, list | tuple) or len(value) != len(kinds):
            number = "" if kinds[-1:] == (Ellipsis,) else f" of {len(kinds)} values"
            raise ConfigError(f"{where} must be a list{number}, not {value!r}.")
        return tuple(check_value(item, kind, bounds, where) for item, kind in zip(value, kinds, strict=True))
    if bounds.get("choices") == SWITCH and isinstance(value, bool):
        value = str(value).lower()
    if annotation is float and not isinstance(value, bool):
        with suppress(TypeError, ValueError):  # YAML 1.1 reads 1e-4, without a dot, as a string
            value = float(value)
    if not isinstance(value, annotation) or (annotation is int and isinstance(value, bool)):
        expected = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[annotation]
        raise ConfigError(f"{where} must be {expected}{' or null' if optional else ''}, not {value!r}.")
    if "choices" in bounds and value not in bounds["choices"]:
        raise ConfigError(f"{where} must be one of {', '.join(bounds['choices'])}, not {value!r}.")
    for name, (words, holds) in LIMITS.items():
        if name in bounds and not holds(value, bounds[name]):
            raise ConfigError(f"{where} must be {words} {bounds[name]}, not {value!r}.")
    return value


def suggestion(word: str, valid: Iterable[str], section: str | None = None) -> str:
    """Returns the end of a message about an unknown name: the most similar valid name, or all."""
    prefix, valid = f"{section}." if section else "", list(valid)
    close = difflib.get_close_matches(str(word), valid, n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else f"; valid are {', '.join(map(prefix.__add__, valid))}."


def load_training_config(
    path: str | os.PathLike, overrides: Iterable[str], config_class_of: Callable[[Mapping], type[TrainingConfig]]
) -> TrainingConfig:
    """Reads a training config.

    Args:
        path: a YAML file, or the name of a packaged one. A key `base: OTHER.yaml` names another, relative to this file
            or packaged, whose settings apply where this file has none.
        overrides: texts like `training.epochs=3`, with the value in YAML.
        config_class_of: returns the config class for the section `model`.

    Raises:
        FileNotFoundError: the file or its base does not exist.
        ConfigError: not YAML, unknown key, or a value of the wrong type; the message names the file and the key.
    """
    path = find_config(path)
    sections = read_with_base(path)
    with_lora = sections.pop(WITH_LORA, {})
    changes = [parse_override(text) for text in overrides]
    of_model = {key: value for section, key, value in changes if section == "model"}
    kind = config_class_of({**sections.get("model", {}), **of_model})
    for section, key, value in changes:
        sections[section] = {**sections.get(section, {}), key: value}
        with_lora.pop(f"{section}.{key}", None)
    if sections.get("lora", {}).get("rank") is not None:
        for name, value in with_lora.items():
            section, _, key = name.rpartition(".")
            sections[section] = {**sections.get(section, {}), key: value}
    config = kind.from_dict(sections, where=f"{path} and the command line" if changes else str(path))
    if config.training.output_dir is None:
        training = dataclasses.replace(config.training, output_dir=str(Path("runs") / path.stem))
        config = dataclasses.replace(config, training=training)
    return config


def read_with_base(path: Path) -> dict:
    """Returns the sections of a file, those of its `base` where it has none."""
    sections = read_yaml(path.read_bytes(), str(path)) or {}
    base = sections.pop("base", None)
    sections = {name: {} if values is None else values for name, values in sections.items()}  # a section without keys
    for name, values in sections.items():
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: section {name} must be a mapping of keys to values, not {values!r}.")
    if base is None:
        return sections
    try:
        base = find_config(str(base), path.parent)
    except OSError as error:
        raise type(error)(f"{path}, base: {error}") from None
    merged = read_with_base(base)
    for section, values in sections.items():
        for key in values:
            merged.get(WITH_LORA, {}).pop(f"{section}.{key}", None)
        merged[section] = {**merged.get(section, {}), **values}
    return merged


def read_yaml(text: str | bytes, where: str) -> Any:
    """Returns the value of YAML text; a ConfigError begins with `where` and has the line."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        mark, reason = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: not valid YAML ({' '.join(reason.split())}).") from None


def parse_override(text: str) -> tuple[str, str, Any]:
    """Splits `section.key=value` into section, key and YAML value."""
    name, equals, value = text.partition("=")
    section, _, key = name.rpartition(".")
    if not equals or not section:
        raise ConfigError(f"{text!r} is not of the form section.key=value, for example training.epochs=3.")
    return section, key, read_yaml(value, name)


def save_training_config(config: TrainingConfig, path: str | os.PathLike) -> None:
    """Writes a training config as commented YAML, which [`load_training_config`] reads."""
    model = yaml.safe_dump({"model": config.model}, sort_keys=False, width=float("inf"))
    lines = [RUN_HEADER, model.removesuffix("\n")]
    for section, kind in config.sections().items():
        lines += ["", f"{section}:"]
        for entry in dataclasses.fields(kind):
            value = getattr(getattr(config, section), entry.name)
            value = list(value) if isinstance(value, tuple) else value
            text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"))
            # PyYAML ends a document of a single value with "..."
            text = text.removesuffix("\n").removesuffix("...").strip()
            lines.append(f"  {entry.name}: {text}  # {entry.metadata['help']}")
    write_text_atomically(path, "\n".join(lines) + "\n")

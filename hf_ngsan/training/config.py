"""The training config of a run: typed sections from YAML, with `base` files and `key=value` overrides.

```yaml
base: ngsan/scenes
training:
  epochs: 20
with_lora: {training.learning_rate: 1.0e-4}
```

The values in the section `with_lora` apply if adapters are trained (`lora.rank` is set), unless an override, or a file
that has this one as its `base`, sets the key.
"""

import dataclasses
import difflib
import operator
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
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
    """A training config that cannot be used; the message names the file, the key and a remedy."""


def setting(default: Any, help: str, *, free_on_resume: bool = False, **bounds: Any) -> Any:
    """Defines a key of a training config: default, help text, and whether a resumed run may change it.

    Bounds are `choices`, `minimum`, `maximum` and `below`.
    """
    return field(default=default, metadata={"help": help, "free_on_resume": free_on_resume, **bounds})


@dataclass(frozen=True)
class DataSettings:
    """The dataset for training and evaluation."""

    spec: str = setting("scenes", "dataset; hf-ngsan datasets lists the kinds of datasets")
    train_split: str = setting("train", "training split")
    validation_split: str | None = setting(
        "validation", "split for choosing the best model; a tenth of train if absent; null = none"
    )
    limit: int | None = setting(None, "number of rows used from each split, the first ones; null = all", minimum=1)
    num_workers: int = setting(0, "processes that prepare batches; 0 = the main one", minimum=0, free_on_resume=True)


@dataclass(frozen=True)
class ScheduleSettings:
    """Length of a stage of training, and its learning rate."""

    epochs: int = setting(15, "passes over the training split", minimum=1, free_on_resume=True)
    early_stopping_patience: int | None = setting(
        None, "evaluations without improvement before the stage stops; null = never", minimum=1, free_on_resume=True
    )
    learning_rate: float = setting(3e-4, "peak learning rate of Adam", minimum=0.0, free_on_resume=True)
    schedule: str = setting("step", "step, cosine, inverse_sqrt or constant, after warm-up", choices=SCHEDULES)
    warmup_epochs: int = setting(3, "epoch t has learning_rate * min(t / warmup_epochs, 1)", minimum=0)
    warmup_updates: int | None = setting(None, "inverse_sqrt: updates to the peak; null = by warmup_epochs", minimum=1)
    decay_start: int = setting(6, "step schedule: last epoch before the first decay", minimum=0)
    decay_every: int = setting(3, "step schedule: epochs between decays", minimum=1)
    decay_factor: float = setting(0.5, "step schedule: factor of a decay", minimum=0.0)
    max_decays: int | None = setting(None, "step schedule: maximum number of decays; null = any number", minimum=0)


@dataclass(frozen=True)
class TrainingSettings(ScheduleSettings):
    """Optimization, saving and logging."""

    output_dir: str | None = setting(None, "folder of the run; null = runs/NAME-OF-THE-YAML", free_on_resume=True)
    seed: int = setting(0, "seed of weights, row order, sampling and dropout", minimum=0, maximum=MAX_INTEGER)
    batch_size: int = setting(50, "rows per update, over all processes and accumulation steps", minimum=1)
    drop_last: bool = setting(False, "drop the last batch of an epoch if it is incomplete")
    gradient_accumulation_steps: int = setting(1, "micro-batches per batch", minimum=1, free_on_resume=True)
    freeze: tuple[str, ...] = setting((), "modules, parameters or patterns like *.bias to freeze")
    vision_learning_rate: float | None = setting(None, "peak for a vision encoder; null = learning_rate", minimum=0.0)
    adam_betas: tuple[float, float] = setting((0.9, 0.98), "betas of Adam")
    adam_epsilon: float = setting(1e-8, "Adam's epsilon", minimum=0.0)
    weight_decay: float = setting(0.0, "decoupled weight decay, also for norms and biases", minimum=0.0)
    max_grad_norm: float | None = setting(
        None, "clip gradients to this norm; null disables it", minimum=0, free_on_resume=True
    )
    ema_decay: float = setting(0.0, "decay of the evaluated and saved weight average; 0 = off", minimum=0, below=1)
    mixed_precision: str | None = setting(
        None, "fp16, bf16, auto = bf16 if the device supports it, null = none", choices=("fp16", "bf16", "auto")
    )
    compile: str = setting("false", "use torch.compile for the training step; auto = on a GPU", choices=SWITCH)
    cache_on_device: str = setting(
        "false", "keep features on the device; auto = on a GPU with enough memory", choices=SWITCH, free_on_resume=True
    )
    num_threads: int | None = setting(None, "CPU threads of each process; null = PyTorch decides", minimum=1)
    save_every_steps: int | None = setting(
        None, "updates between additional checkpoints within an epoch; null = none", minimum=1, free_on_resume=True
    )
    keep_checkpoints: int = setting(2, "checkpoints to keep; older ones are deleted", minimum=1, free_on_resume=True)
    log_every: int = setting(50, "updates between two tracker entries", minimum=1, free_on_resume=True)
    tracker: str | None = setting("tensorboard", "a tracker of Accelerate; null = none", free_on_resume=True)


@dataclass(frozen=True)
class EvaluationSettings:
    """Evaluation and the choice of the best model."""

    every_epochs: int = setting(1, "epochs between evaluations; the last one is always evaluated", minimum=1)
    metric: str = setting("loss", "validation score that chooses the best model")
    batch_size: int = setting(64, "batch size of the evaluation, per process", minimum=1, free_on_resume=True)


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adapters (Hu et al. 2022) for models of transformers: W becomes W + alpha / rank * B A."""

    rank: int | None = setting(None, "rank; null = no adapters, all weights are trained", minimum=1)
    alpha: float = setting(16.0, "scale of the adapters is alpha / rank", minimum=0.0)
    dropout: float = setting(0.0, "dropout of the adapters' inputs", minimum=0.0, below=1.0)
    target_modules: tuple[str, ...] = setting((), "suffixes of names of linear layers; [] = all but the output layer")


@dataclass(frozen=True)
class DistillationSettings(ScheduleSettings):
    """Settings of the stage `distill`; the section `training` has the batch size and the teachers."""

    images: str | None = setting(None, "dataset of the training images, with or without captions; null = data.spec")
    samples_per_image: int = setting(5, "captions sampled per image", minimum=1)
    temperature: float = setting(1.0, "temperature of sampling", minimum=1e-3)
    max_new_tokens: int = setting(20, "maximum tokens of a sample, including the end token", minimum=1)


@dataclass(frozen=True)
class SelfCriticalSettings(ScheduleSettings):
    """Settings of the stage `scst`: sampling, rewards and baseline; the section `training` has the batch size."""

    decoding: str = setting("sample", "decoding of captions: sample or beam", choices=("sample", "beam"))
    samples_per_image: int = setting(5, "captions per image; with beam search, the number of beams", minimum=1)
    temperature: float = setting(1.0, "temperature of sampling", minimum=1e-3)
    top_p: float = setting(1.0, "nucleus sampling: probability mass of the kept words; 1 = all", minimum=1e-3)
    max_new_tokens: int = setting(20, "maximum tokens of a sample, including the end token", minimum=1)
    baseline: str = setting(
        "leave_one_out", "reward baseline: greedy, mean or leave_one_out", choices=("greedy", "mean", "leave_one_out")
    )
    dropout: bool = setting(False, "use dropout for log-probabilities; sampling never uses it")
    freeze_encoder: bool = setting(False, "train the decoder only, which is faster")
    cider_d_weight: float = setting(1.0, "weight of CIDEr-D (0 to 10) in the reward", minimum=0.0)
    bleu_4_weight: float = setting(0.0, "weight of sentence BLEU-4 (0 to 1) in the reward", minimum=0.0)
    meteor_weight: float = setting(0.0, "weight of METEOR (0 to 1) in the reward; needs the extra eval", minimum=0.0)
    clip_score_model: str | None = setting(None, "dual encoder for a CLIPScore reward (0 to 2.5); null = none")
    clip_score_weight: float = setting(1.0, "weight of CLIPScore in the reward", minimum=0.0)
    end_token_in_reward: bool = setting(True, "count the end token in CIDEr-D, BLEU-4 and document frequencies")
    bad_ending_penalty: float = setting(
        0.0, "penalty for captions that end with 'a' or 'of', or do not end", minimum=0.0
    )
    reward_function: str | None = setting(None, "package.module:function of (captions, references); null = none")
    reward_function_weight: float = setting(1.0, "weight of the function in the reward")


@dataclass(frozen=True)
class TrainingConfig:
    """A training config: all settings of a training run.

    Each task has a subclass with its settings classes, defaults and additional sections.

    Attributes:
        model: `model_type` and fields of its configuration; or `init_from`, the folder of a trained model, and
            configuration fields to change.
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
        """Returns the settings classes of all sections except `model`."""
        kinds = typing.get_type_hints(cls)
        return {entry.name: kinds[entry.name] for entry in dataclasses.fields(cls) if entry.name != "model"}

    @classmethod
    def from_dict(cls, sections: Mapping, where: str = "the training config") -> Self:
        """Makes a training config from nested mappings; raises a ConfigError for a wrong section, key or value."""
        kinds = cls.sections()
        check_keys(sections, {"model": (), **{name: keys_of(kind) for name, kind in kinds.items()}}, where)
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
        """Returns the changed keys that prevent resuming; `epochs` is one of them only for a cosine schedule."""
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
    bounds = {entry.name: entry.metadata for entry in dataclasses.fields(kind)}
    annotations = typing.get_type_hints(kind)
    return {
        key: check_value(value, annotations[key], bounds[key], f"{where}: {section}.{key}")
        for key, value in values.items()
    }


def keys_of(kind: type) -> dict[str, None]:
    return dict.fromkeys(entry.name for entry in dataclasses.fields(kind))


def check_keys(sections: Mapping[str, Iterable[str]], known: Mapping[str, Collection[str]], where: str) -> None:
    """Raises a ConfigError for an unknown section, or an unknown key of a section whose keys are known."""
    for section, keys in sections.items():
        if section not in known:
            raise ConfigError(f"{where}: unknown section {section!r}{suggestion(section, known)}")
        for key in keys if known[section] else ():
            if key not in known[section]:
                raise ConfigError(f"{where}: unknown key {section}.{key}{suggestion(key, known[section], section)}")


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
    """Returns the end of a message about an unknown name: the most similar valid name, or all valid names."""
    prefix, valid = f"{section}." if section else "", list(valid)
    close = difflib.get_close_matches(str(word), valid, n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else f"; valid are {', '.join(map(prefix.__add__, valid))}."


def load_config_of_class(
    path: str | os.PathLike, overrides: Iterable[str], config_class_of: Callable[[Mapping], type[TrainingConfig]]
) -> TrainingConfig:
    """Reads a training config.

    Args:
        path: a YAML file, or the name of a packaged one. The key `base: OTHER.yaml` names another file (relative to
            this one) or a packaged one; its settings are the defaults.
        overrides: texts like `training.epochs=3`; the value is YAML.
        config_class_of: returns the config class for the section `model`.

    Raises:
        FileNotFoundError: the file or its base does not exist.
        ConfigError: invalid YAML, an unknown key, or a value of the wrong type; the message names file and key.
    """
    path = find_config(path)
    sections = read_with_base(path)
    with_lora = sections.pop(WITH_LORA, {})
    changes = [parse_override(text) for text in overrides]
    model_fields = {key: value for section, key, value in changes if section == "model"}
    kind = config_class_of({**sections.get("model", {}), **model_fields})
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
    """Returns the sections of a file, merged with those of its `base`."""
    sections = read_yaml(path.read_bytes(), str(path)) or {}
    base = sections.pop("base", None)
    sections = {name: {} if values is None else values for name, values in sections.items()}  # an empty section
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
    """Parses YAML text; raises a ConfigError with `where` and the line."""
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
    """Writes a training config as commented YAML for [`~hf_ngsan.tasks.load_training_config`]."""
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

"""The training config of a run: typed sections from YAML, with `base` files and `key=value` overrides.

```yaml
base: ngsan/scenes
training:
  epochs: 20
```

```python
load_training_config("mine.yaml", ["training.seed=1"], config_class_of).training.seed  # 1
```

A file may have values for the case that adapters are trained (`lora.rank` is set), which hold unless an override, or
a file that names this one as its `base`, sets the key:

    with_lora: {training.learning_rate: 1.0e-4}

`hf_ngsan.tasks.load_training_config` finds the class by the model type.
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

from ..io.bounds import MAX_INTEGER
from ..io.files import is_stream, write_text_atomically
from ..io.packaged import find_config
from .adapters import LoraSettings
from .plain_yaml import PlainYAMLError, parse_yaml, read_yaml
from .settings import DataSettings, EvaluationSettings, TrainingSettings

WITH_LORA = "with_lora"


class ConfigError(ValueError):
    """A training config that cannot be used; the message names the file and the key and says what to do."""


@dataclass(frozen=True)
class TrainingConfig:
    """A training config: everything that a training run depends on.

    A task subclasses it, with its own settings classes for the sections and with sections of its own.

    Attributes:
        model: `model_type` and the fields of its configuration; or `init_from`, a folder of a trained model, and the
            configuration fields to change in it.
        data, training, evaluation, lora: the other sections.
    """

    default_model_type: ClassVar[str | None] = None

    model: dict = field(default_factory=dict)
    data: DataSettings = field(default_factory=DataSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    lora: LoraSettings = field(default_factory=LoraSettings)

    def __post_init__(self) -> None:
        chosen = "init_from" in self.model or self.model.get("model_type") is not None
        if self.default_model_type is not None and not chosen:
            fields = {key: value for key, value in self.model.items() if key != "model_type"}
            object.__setattr__(self, "model", {"model_type": self.default_model_type, **fields})

    @classmethod
    def sections(cls) -> dict[str, type]:
        """Returns the settings classes of all sections but `model`, by the names of the sections."""
        kinds = typing.get_type_hints(cls)
        return {entry.name: kinds[entry.name] for entry in dataclasses.fields(cls) if entry.name != "model"}

    @classmethod
    def from_dict(cls, sections: Mapping, where: str = "the training config") -> Self:
        """Returns the training config of nested mappings, checked.

        Raises:
            ConfigError: unknown section or key (the closest valid one is named), or a value of the wrong type or range.
        """
        kinds = cls.sections()
        for name, values in sections.items():
            if name not in kinds and name != "model":
                raise ConfigError(f"{where}: unknown section {name!r}{suggestion(name, ['model', *kinds])}")
            if not isinstance(values, Mapping):
                raise ConfigError(f"{where}: section {name} must be a mapping of keys to values, not {values!r}.")
            for key, value in values.items():
                check_encodable(value, f"{where}: {name}.{key}")
        parsed = {name: parse_section(name, kind, sections.get(name, {}), where) for name, kind in kinds.items()}
        return cls(model=dict(sections.get("model", {})), **parsed)

    def to_dict(self) -> dict:
        settings = {name: dataclasses.asdict(getattr(self, name)) for name in self.sections()}
        return {"model": dict(self.model), **settings}

    @property
    def output_dir(self) -> Path:
        return Path(os.path.expanduser(self.training.output_dir or "runs/model"))

    def changes_that_break_resuming(self, new: Self) -> list[str]:
        """Returns the changed keys, as `section.key`, that a resumed run may not change.

        The number of epochs of a stage may change, unless a cosine schedule depends on it.
        """
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


LIMITS = {"minimum": ("at least", operator.ge), "maximum": ("at most", operator.le), "below": ("below", operator.lt)}
"""Comparisons of a value with the limits of its setting, in words and as functions."""


def parse_section(section: str, kind: type, values: Mapping, where: str) -> Any:
    settings = {entry.name: entry for entry in dataclasses.fields(kind)}
    annotations = typing.get_type_hints(kind)
    parsed = {}
    for key, value in values.items():
        if key not in settings:
            raise ConfigError(f"{where}: unknown key {section}.{key}{suggestion(key, settings, section)}")
        parsed[key] = check_value(value, annotations[key], settings[key].metadata, f"{where}: {section}.{key}")
    return kind(**parsed)


def check_value(value: Any, annotation: Any, bounds: Mapping, where: str) -> Any:
    optional = isinstance(annotation, types.UnionType) and types.NoneType in typing.get_args(annotation)
    if optional:
        if value is None:
            return None
        annotation = next(part for part in typing.get_args(annotation) if part is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        kinds = typing.get_args(annotation)
        if kinds[-1] is Ellipsis and isinstance(value, list | tuple):
            kinds = kinds[:1] * len(value)
        if not isinstance(value, list | tuple) or len(value) != len(kinds):
            number = "" if kinds[-1:] == (Ellipsis,) else f" of {len(kinds)} values"
            raise ConfigError(f"{where} must be a list{number}, not {value!r}.")
        return tuple(check_value(item, kind, bounds, where) for item, kind in zip(value, kinds, strict=True))
    if annotation is float and not isinstance(value, bool):
        with suppress(TypeError, ValueError):  # YAML 1.1 reads 1e-4, without a dot, as a string
            value = float(value)
    if not isinstance(value, annotation) or (annotation is int and isinstance(value, bool)):
        expected = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[annotation]
        raise ConfigError(f"{where} must be {expected}{' or null' if optional else ''}, not {value!r}.")
    if value != value:
        raise ConfigError(f"{where} must be a number, not nan.")
    if bounds["choices"] and value not in bounds["choices"]:
        raise ConfigError(f"{where} must be one of {', '.join(bounds['choices'])}, not {value!r}.")
    for name, (words, holds) in LIMITS.items():
        limit = MAX_INTEGER if name == "maximum" and annotation is int and bounds[name] is None else bounds[name]
        if limit is not None and not holds(value, limit):
            raise ConfigError(f"{where} must be {words} {limit}, not {value!r}.")
    return value


def check_encodable(value: Any, where: str) -> None:
    """Raises a ConfigError for text with lone surrogates in a value, which UTF-8 cannot encode."""
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            check_encodable(item, where)
    elif isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(f"{where} is {value!r:.60}, which is not UTF-8 text; correct it.")


def suggestion(word: str, valid: Iterable[str], section: str | None = None) -> str:
    """Returns the end of a message about an unknown name: the most similar valid name, or all valid names."""
    valid = list(valid)
    prefix = f"{section}." if section else ""
    close = difflib.get_close_matches(str(word), valid, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {prefix}{close[0]}?"
    return f"; valid are {', '.join(prefix + name for name in valid)}."


def load_training_config(
    path: str | os.PathLike, overrides: Iterable[str], config_class_of: Callable[[Mapping], type[TrainingConfig]]
) -> TrainingConfig:
    """Reads a training config.

    Args:
        path: a YAML file with any of the sections `model`, `data`, `training`, `evaluation` and those of the task, or
            the name of a packaged one. A key `base: OTHER.yaml` names another, relative to this file or packaged, whose
            settings apply where this file has none.
        overrides: texts like `training.epochs=3`, with the value in YAML. `epochs=3` is enough if only one of the
            sections `data`, `training` and `evaluation`, or else only one of the task's, has such a key.
        config_class_of: returns the config class for the section `model`.

    Raises:
        FileNotFoundError, IsADirectoryError: the file or its base does not exist, or is a folder.
        ConfigError: not YAML, unknown key, or a value of the wrong type; the message names the file and the key.
    """
    path = find_config(path)
    sections = read_with_base(path)
    with_lora = sections.pop(WITH_LORA, {})
    changes = [parse_override(text) for text in overrides]
    of_model = {key: value for section, key, value in changes if section == "model"}
    model = sections.get("model", {})
    model = dict(model) if isinstance(model, Mapping) else {}
    if "init_from" in of_model:  # the file may name a model on the Hub that is out of reach
        model["init_from"] = of_model["init_from"]
    config_class_of(model).from_dict(sections, where=str(path))
    kind = config_class_of({**model, **of_model})
    for section, key, value in changes:
        section = section or section_of(key, kind)
        sections[section] = {**sections.get(section, {}), key: value}
        with_lora.pop(f"{section}.{key}", None)
    if sections.get("lora", {}).get("rank") is not None:
        for name, value in with_lora.items():
            section, _, key = name.rpartition(".")
            sections[section] = {**sections.get(section, {}), key: value}
    config = kind.from_dict(sections, where="the command line" if changes else str(path))
    if config.training.output_dir is None:
        training = dataclasses.replace(config.training, output_dir=str(Path("runs") / path.stem))
        config = dataclasses.replace(config, training=training)
    return config


def read_with_base(path: Path, seen: tuple[Path, ...] = ()) -> dict:
    if path.resolve() in seen:
        raise ConfigError(f"{path}: its base files name each other in a circle.")
    try:
        sections = read_yaml(path)
    except PlainYAMLError as error:
        line = f", line {error.line}" if error.line else ""
        raise ConfigError(f"{path}{line}: not valid YAML ({error}).") from None
    if sections is None:
        sections = {}
    if not isinstance(sections, dict):
        raise ConfigError(f"{path}: a training config is a mapping of sections, not {type(sections).__name__}.")
    base = sections.pop("base", None)
    # YAML has null for a section without keys
    sections = {name: {} if values is None else values for name, values in sections.items()}
    if not isinstance(sections.get(WITH_LORA, {}), dict):
        raise ConfigError(f"{path}: section {WITH_LORA} must be a mapping of keys to values.")
    if base is None:
        return sections
    if not isinstance(base, str):
        raise ConfigError(f"{path}: base must be the name of a YAML file, not {base!r}.")
    try:
        base = find_config(base, path.parent)
    except OSError as error:
        raise type(error)(f"{path}, base: {error}") from None
    if is_stream(base):  # it may never end
        raise ConfigError(f"{path}: base is {base}, a device or a pipe; it must be the name of a YAML file.")
    merged = read_with_base(base, (*seen, path.resolve()))
    for section, values in sections.items():
        for key in values if isinstance(values, dict) else ():
            merged.get(WITH_LORA, {}).pop(f"{section}.{key}", None)
    for name, values in sections.items():
        both = isinstance(values, dict) and isinstance(merged.get(name), dict)
        merged[name] = {**merged[name], **values} if both else values
    return merged


def parse_override(text: str) -> tuple[str, str, Any]:
    """Splits `section.key=value` into section, key and YAML value; a bare key has the section `""`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{text!r} is not of the form key=value, for example training.epochs=3.")
    try:
        parsed = parse_yaml(value)
    except PlainYAMLError as error:
        raise ConfigError(f"{name}: the value is not valid YAML ({error}).") from None
    section, _, key = name.rpartition(".")
    return section, key, parsed


def section_of(key: str, kind: type[TrainingConfig]) -> str:
    """Returns the only section, other than `model`, with this key; common sections come before the task's own."""
    keys = [(section, entry.name) for section, of in kind.sections().items() for entry in dataclasses.fields(of)]
    owners = [section for section, name in keys if name == key]
    owners = [section for section in owners if section in TrainingConfig.sections()] or owners
    if len(owners) > 1:
        raise ConfigError(f"{key} is ambiguous; write {' or '.join(f'{owner}.{key}' for owner in owners)}.")
    if not owners:
        close = difflib.get_close_matches(key, [name for _, name in keys], n=1)
        hints = [f"did you mean {section}.{name}?" for section, name in keys if name in close]
        hint = hints[0] if hints else "write section.key=value, for example model.hidden_size=256."
        raise ConfigError(f"unknown key {key!r}; {hint}")
    return owners[0]


def save_training_config(config: TrainingConfig, path: str | os.PathLike) -> None:
    """Writes a training config as commented YAML, whole or not at all; [`load_training_config`] reads an equal one."""
    lines = ["# The training config of this run: hf-ngsan train --config THIS-FILE repeats it."]
    lines.append(yaml.safe_dump({"model": config.model}, sort_keys=False, width=float("inf")).removesuffix("\n"))
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

"""The recipe of a training run: typed sections read from YAML, with `base` files and `key=value` overrides."""

import dataclasses
import difflib
import os
import types
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ..files import write_text_atomically
from .settings import DataSettings, EvaluationSettings, SelfCriticalSettings, TrainingSettings


class RecipeError(ValueError):
    """A recipe that cannot be used; the message names the file and the key and says what to do."""


@dataclass(frozen=True)
class Recipe:
    """Everything that a training run depends on.

    Attributes:
        model: `model_type` and the fields of its configuration; or `init_from`, a folder of a trained model, and the
            configuration fields to change in it. `vocab_size` and `visual_feature_size` follow from the data.
        data, training, self_critical, evaluation: the other sections.
    """

    model: dict = field(default_factory=lambda: {"model_type": "ngsan"})
    data: DataSettings = field(default_factory=DataSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    self_critical: SelfCriticalSettings = field(default_factory=SelfCriticalSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    @classmethod
    def from_dict(cls, sections: Mapping, where: str = "the recipe") -> "Recipe":
        """Check nested mappings and turn them into a recipe.

        Raises:
            RecipeError: unknown section or key (the closest valid one is named), or a value of the wrong type or range.
        """
        for name in sections:
            if name not in SECTIONS and name != "model":
                raise RecipeError(f"{where}: unknown section {name!r}{suggestion(name, ['model', *SECTIONS])}")
        for name, values in sections.items():
            if not isinstance(values, Mapping):
                raise RecipeError(f"{where}: section {name} must be a mapping of keys to values, not {values!r}.")
        parsed = {name: parse_section(name, sections.get(name, {}), where) for name in SECTIONS}
        model = dict(sections.get("model", {}))
        if "init_from" not in model:
            model = {"model_type": "ngsan", **model}
        return cls(model=model, **parsed)

    def to_dict(self) -> dict:
        return {"model": dict(self.model), **{name: dataclasses.asdict(getattr(self, name)) for name in SECTIONS}}

    @property
    def output_dir(self) -> Path:
        return Path(self.training.output_dir or "runs/captioner")


SECTIONS = {
    "data": DataSettings,
    "training": TrainingSettings,
    "self_critical": SelfCriticalSettings,
    "evaluation": EvaluationSettings,
}


def parse_section(section: str, values: Mapping, where: str):
    settings = {entry.name: entry for entry in dataclasses.fields(SECTIONS[section])}
    annotations = typing.get_type_hints(SECTIONS[section])
    parsed = {}
    for key, value in values.items():
        if key not in settings:
            raise RecipeError(f"{where}: unknown key {section}.{key}{suggestion(key, settings, section)}")
        parsed[key] = check_value(value, annotations[key], settings[key].metadata, f"{where}: {section}.{key}")
    return SECTIONS[section](**parsed)


def check_value(value, annotation, bounds: Mapping, where: str):
    optional = isinstance(annotation, types.UnionType) and types.NoneType in typing.get_args(annotation)
    if optional:
        if value is None:
            return None
        annotation = next(part for part in typing.get_args(annotation) if part is not types.NoneType)
    if typing.get_origin(annotation) is tuple:
        kinds = typing.get_args(annotation)
        if not isinstance(value, list | tuple) or len(value) != len(kinds):
            raise RecipeError(f"{where} must be a list of {len(kinds)} values, not {value!r}.")
        return tuple(check_value(item, kind, bounds, where) for item, kind in zip(value, kinds, strict=True))
    if annotation is float and not isinstance(value, bool):
        with suppress(TypeError, ValueError):  # YAML 1.1 reads 1e-4, without a dot, as a string
            value = float(value)
    if not isinstance(value, annotation) or (annotation is int and isinstance(value, bool)):
        expected = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[annotation]
        raise RecipeError(f"{where} must be {expected}{' or null' if optional else ''}, not {value!r}.")
    if value != value:
        raise RecipeError(f"{where} must be a number, not nan.")
    if bounds["choices"] and value not in bounds["choices"]:
        raise RecipeError(f"{where} must be one of {', '.join(bounds['choices'])}, not {value!r}.")
    if bounds["minimum"] is not None and value < bounds["minimum"]:
        raise RecipeError(f"{where} must be at least {bounds['minimum']}, not {value!r}.")
    if bounds["below"] is not None and value >= bounds["below"]:
        raise RecipeError(f"{where} must be below {bounds['below']}, not {value!r}.")
    return value


def suggestion(word: str, valid: Iterable[str], section: str | None = None) -> str:
    """How a message about an unknown name ends: with the closest valid one or, if none is close, with all of them."""
    valid = list(valid)
    prefix = f"{section}." if section else ""
    close = difflib.get_close_matches(str(word), valid, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {prefix}{close[0]}?"
    return f"; valid are {', '.join(prefix + name for name in valid)}."


def load_recipe(path: str | os.PathLike, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        path: a YAML file with any of the sections `model`, `data`, `training`, `self_critical`, `evaluation`. A key
            `base: OTHER.yaml` names a file, relative to this one, whose settings hold wherever this file is silent.
        overrides: texts like `training.epochs=3`, the value in YAML. `epochs=3` does too where only one section other
            than `model` and `self_critical` has such a key.

    Raises:
        FileNotFoundError: the file or its base does not exist.
        RecipeError: not YAML, unknown key, or a value of the wrong type; the message names the file and the key.
    """
    path = Path(path)
    sections = read_with_base(path)
    Recipe.from_dict(sections, where=str(path))
    for text in overrides:
        section, key, value = parse_override(text)
        sections[section] = {**sections.get(section, {}), key: value}
    recipe = Recipe.from_dict(sections, where="the command line" if overrides else str(path))
    if recipe.training.output_dir is None:
        training = dataclasses.replace(recipe.training, output_dir=str(Path("runs") / path.stem))
        recipe = dataclasses.replace(recipe, training=training)
    return recipe


def read_with_base(path: Path, seen: tuple[Path, ...] = ()) -> dict:
    if path.resolve() in seen:
        raise RecipeError(f"{path}: its base files name each other in a circle.")
    try:
        sections = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        named_by = f" (named as base by {seen[-1]})" if seen else ""
        raise FileNotFoundError(f"There is no recipe {path}{named_by}.") from None
    except IsADirectoryError:
        raise RecipeError(f"{path} is a folder; a recipe is a YAML file.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise RecipeError(f"{path}{line}: not valid YAML ({getattr(error, 'problem', None) or error}).") from None
    if sections is None:
        sections = {}
    if not isinstance(sections, dict):
        raise RecipeError(f"{path}: a recipe is a mapping of sections, not {type(sections).__name__}.")
    base = sections.pop("base", None)
    sections = {name: {} if values is None else values for name, values in sections.items()}
    if base is None:
        return sections
    if not isinstance(base, str):
        raise RecipeError(f"{path}: base must be the name of a YAML file, not {base!r}.")
    merged = read_with_base(path.parent / base, (*seen, path.resolve()))
    for name, values in sections.items():
        both = isinstance(values, dict) and isinstance(merged.get(name), dict)
        merged[name] = {**merged[name], **values} if both else values
    return merged


def parse_override(text: str) -> tuple[str, str, object]:
    """Split `section.key=value` into section, key and YAML value; a bare key is looked up in the typed sections."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise RecipeError(f"{text!r} is not of the form key=value, for example training.epochs=3.")
    try:
        value = yaml.safe_load(value)
    except yaml.YAMLError:
        raise RecipeError(f"{text!r}: the value is not valid YAML.") from None
    section, _, key = name.rpartition(".")
    return section or section_of(key), key, value


def section_of(key: str) -> str:
    """The one section, other than `model`, that has this key; `self_critical` only if no other has it."""
    keys = [(section, entry.name) for section, kind in SECTIONS.items() for entry in dataclasses.fields(kind)]
    owners = [section for section, name in keys if name == key]
    owners = [section for section in owners if section != "self_critical"] or owners
    if len(owners) > 1:
        raise RecipeError(f"{key} is ambiguous; write {' or '.join(f'{owner}.{key}' for owner in owners)}.")
    if not owners:
        close = difflib.get_close_matches(key, [name for _, name in keys], n=1)
        hints = [f"did you mean {section}.{name}?" for section, name in keys if name in close]
        hint = hints[0] if hints else "write section.key=value, for example model.hidden_size=256."
        raise RecipeError(f"unknown key {key!r}; {hint}")
    return owners[0]


def save_recipe(recipe: Recipe, path: str | os.PathLike):
    """Write a recipe as commented YAML, whole or not at all; [`load_recipe`] reads it back as it was."""
    lines = ["# The recipe of this run: hf-ngsan train --config THIS-FILE repeats it."]
    lines.append(yaml.safe_dump({"model": recipe.model}, sort_keys=False, width=float("inf")).removesuffix("\n"))
    for section, kind in SECTIONS.items():
        lines += ["", f"{section}:"]
        for entry in dataclasses.fields(kind):
            value = getattr(getattr(recipe, section), entry.name)
            value = flow_yaml(list(value) if isinstance(value, tuple) else value)
            lines.append(f"  {entry.name}: {value}  # {entry.metadata['help']}")
    write_text_atomically(path, "\n".join(lines) + "\n")


def flow_yaml(value) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"))
    return text.removesuffix("\n").removesuffix("...").strip()


def changes_that_break_resuming(old: Recipe, new: Recipe) -> list[str]:
    """The keys that differ between two recipes and would make a resumed run another run, as `section.key` texts.

    The number of a stage's epochs may change unless a cosine schedule depends on it. A run that had no self-critical
    stage may get one (`training.stage` from xe to auto), with any settings.
    """
    changed = [f"model.{key}" for key in sorted({*old.model, *new.model}) if old.model.get(key) != new.model.get(key)]
    gets_stage = (old.training.stage, new.training.stage) == ("xe", "auto")
    for section, kind in SECTIONS.items():
        if section == "self_critical" and old.training.stage == "xe":
            continue
        before, after = getattr(old, section), getattr(new, section)
        for entry in dataclasses.fields(kind):
            free = entry.metadata["free_on_resume"] or (entry.name == "stage" and gets_stage)
            if entry.name == "epochs" and "cosine" in (before.schedule, after.schedule):
                free = False
            if not free and getattr(before, entry.name) != getattr(after, entry.name):
                changed.append(f"{section}.{entry.name}")
    return changed

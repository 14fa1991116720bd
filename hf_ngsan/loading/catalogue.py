"""The models that come with the package, as their own folders describe them, and the architectures that can be trained.

```python
[model.name for model in packaged_catalogue("captioning")]  # ["ngsan-flickr8k", ...]
```

It reads cards, configurations and training configs, and imports neither torch nor transformers.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import metadata_load

from ..io.packaged import describe_config, find_config, packaged_configs, packaged_models
from ..io.weight_sources import CARD
from ..papers import Paper
from ..registry import MODEL_TYPES

TRAINING_CONFIG = "training_config.yaml"
GUESTS = "guests"


@dataclass(frozen=True)
class PackagedModel:
    """A trained model that comes with the package.

    Attributes:
        name: as every command takes it.
        model_type, task: its architecture, and the task of that.
        bytes: size of its files, without what Python compiles of its code.
        data, split: the dataset of its scores.
        scores: values by metric, as its card has them.
        metric: the one that chose it in training; None if its training config is missing.
        license: identifier on the Hub, or the name of another licence; None if its card has none.
    """

    name: str
    model_type: str
    task: str | None
    bytes: int
    data: str | None
    split: str | None
    scores: Mapping[str, float]
    metric: str | None
    license: str | None

    @property
    def score(self) -> float | None:
        """The main score: that of the metric, if the card has it."""
        return None if self.metric is None else self.scores.get(self.metric)


@dataclass(frozen=True)
class Architecture:
    """An architecture that a training config makes a model of.

    Attributes:
        model_type: its name; "guests" stands for the models of transformers that packaged configs fine-tune.
        task: the task that its models are trained for; None for guests, which have several.
        name: of its models in texts.
        paper: the one that describes it, if any.
        configs: the packaged training configs by name, each with what it says of itself.
    """

    model_type: str
    task: str | None
    name: str
    paper: Paper | None
    configs: Mapping[str, str]


def packaged_catalogue(kind: str | None = None) -> list[PackagedModel]:
    """Returns the packaged models, all or those of a model type or task; a ValueError names the known ones."""
    return of_kind(map(packaged_model_in, packaged_models().values()), kind)


def architectures(kind: str | None = None) -> list[Architecture]:
    """Returns what can be trained, all or those of a model type or task; a ValueError names the known ones."""
    entries = {name: entry for name, entry in MODEL_TYPES.items() if entry.task is not None}
    configs: dict[str, dict[str, str]] = {model_type: {} for model_type in [*entries, GUESTS]}
    for name, file in packaged_configs().items():
        configs[trained_type(file) or GUESTS][name] = describe_config(file)
    described = [
        Architecture(name, entry.task, entry.name or name, entry.paper, configs[name])
        for name, entry in entries.items()
    ]
    described.append(Architecture(GUESTS, None, "models of transformers, to be fine-tuned", None, configs[GUESTS]))
    return of_kind(described, kind)


def of_kind(entries: Iterable[Any], kind: str | None) -> list[Any]:
    kinds = {word for name, entry in MODEL_TYPES.items() if entry.task for word in (name, entry.task)} | {GUESTS}
    if kind is not None and kind not in kinds:
        raise ValueError(f"{kind!r} is neither a model type nor a task; there are {', '.join(sorted(kinds))}.")
    return [entry for entry in entries if kind in (None, entry.model_type, entry.task)]


def packaged_model_in(folder: Path) -> PackagedModel:
    """Returns a packaged model as the files of its folder describe it."""
    model_type = json.loads((folder / "config.json").read_bytes())["model_type"]
    card: Mapping[str, Any] = metadata_load(folder / CARD) or {}
    results = [result for model in card.get("model-index", ()) for result in model["results"]]
    measured = results[0] if results else {"dataset": {}, "metrics": ()}
    training = folder / TRAINING_CONFIG
    settings = yaml.safe_load(training.read_text(encoding="utf-8")) if training.is_file() else {}
    return PackagedModel(
        name=folder.name,
        model_type=model_type,
        task=MODEL_TYPES[model_type].task,
        bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc"),
        data=measured["dataset"].get("name"),
        split=measured["dataset"].get("split"),
        scores={metric["type"]: metric["value"] for metric in measured["metrics"]},
        metric=settings.get("evaluation", {}).get("metric"),
        license=card.get("license_name") or card.get("license"),
    )


def trained_type(file: Path) -> str | None:
    """Returns the model type that a training config trains; None if only the model that it begins with knows it."""
    model = model_section(file)
    folder = packaged_models().get(model.get("init_from", ""))
    if "model_type" not in model and folder is not None:
        return json.loads((folder / "config.json").read_bytes())["model_type"]
    return model.get("model_type")


def model_section(file: Path) -> dict[str, Any]:
    """Returns the section `model` of a training config, with that of its base."""
    sections = yaml.safe_load(file.read_text(encoding="utf-8"))
    base = model_section(find_config(sections["base"], file.parent)) if "base" in sections else {}
    return {**base, **(sections.get("model") or {})}

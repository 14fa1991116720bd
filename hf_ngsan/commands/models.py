"""The command `hf-ngsan models`: lists the packaged models, and the architectures that can be trained."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..io.packaged import describe_config, packaged_configs, packaged_models
from ..registry import MODEL_TYPES
from .arguments import json_of

SUMMARY = """List the packaged models and the architectures that can be trained.

Every command accepts the name of a packaged model. Each architecture is listed with its number of training configs."""
EPILOG = """examples:
  hf-ngsan models
  hf-ngsan models --type captioning

With --type, the training configs are listed too; hf-ngsan train --config NAME trains with one of them."""
GUESTS = "guests"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--type", metavar="NAME", help="only this model type or task, such as ngsan or retrieval")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every score and config")


def run(options: argparse.Namespace) -> None:
    kinds = {word for name, entry in MODEL_TYPES.items() if entry.task for word in (name, entry.task)} | {GUESTS}
    if options.type not in {None, *kinds}:
        raise ValueError(f"{options.type!r} is neither a model type nor a task; there are {', '.join(sorted(kinds))}.")
    packaged, trainable = (
        [entry for entry in entries if options.type in (None, entry["model_type"], entry["task"])]
        for entries in (map(packaged_model, packaged_models().values()), architectures())
    )
    if options.json:
        print(json_of({"packaged": packaged, "architectures": trainable}))
        return
    rows = [["PACKAGED", "TYPE", "TASK", "SIZE", "DATA", "SCORE", "LICENCE"]]
    for model in packaged:
        metric = model["metric"]
        score = f"{metric} {model['scores'][metric]:g}" if metric in model["scores"] else "-"
        data = " ".join(filter(None, [model["data"], model["split"]])) or "-"
        kind = [model["name"], model["model_type"], model["task"] or "-"]
        rows.append([*kind, f"{model['bytes'] / 1e6:.1f} MB", data, score, model["license"] or "-"])
    print(table(rows) if packaged else "No packaged model has this type.")
    rows = [["TRAINABLE", "TASK", "CONFIGS", "WHAT"]]
    for entry in trainable:
        paper = f" ({entry['paper']['authors']}, {entry['paper']['venue']})" if entry["paper"] else ""
        number = str(len(entry["configs"]))
        rows.append([entry["model_type"], entry["task"] or "-", number, f"{entry['name']}{paper}"])
    print(f"\n{table(rows)}")
    if options.type is not None:
        configs = [[name, what] for entry in trainable for name, what in entry["configs"].items()]
        print(f"\n{table([['CONFIG', ''], *configs])}")


def packaged_model(folder: Path) -> dict[str, Any]:
    import yaml
    from huggingface_hub import metadata_load

    model_type = json.loads((folder / "config.json").read_bytes())["model_type"]
    card: dict[str, Any] = metadata_load(folder / "README.md") or {}
    results = [result for model in card.get("model-index", ()) for result in model["results"]]
    measured = results[0] if results else {"dataset": {}, "metrics": ()}
    training = folder / "training_config.yaml"
    settings = yaml.safe_load(training.read_text(encoding="utf-8")) if training.is_file() else {}
    return {
        "name": folder.name,
        "model_type": model_type,
        "task": MODEL_TYPES[model_type].task,
        "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc"),
        "data": measured["dataset"].get("name"),
        "split": measured["dataset"].get("split"),
        "scores": {metric["type"]: metric["value"] for metric in measured["metrics"]},
        "metric": settings.get("evaluation", {}).get("metric"),
        "license": card.get("license_name") or card.get("license"),
    }


def architectures() -> list[dict[str, Any]]:
    """Returns the architectures with their packaged training configs; models of transformers come last."""
    import yaml

    described: dict[str, dict[str, Any]] = {
        name: {"task": entry.task, "name": entry.name or name, "paper": entry.paper and asdict(entry.paper)}
        for name, entry in MODEL_TYPES.items()
        if entry.task is not None
    }
    described[GUESTS] = {"task": None, "name": "models of transformers, to be fine-tuned", "paper": None}
    configs: dict[str, dict[str, str]] = {name: {} for name in described}
    for name, file in packaged_configs().items():
        model = yaml.safe_load(file.read_text(encoding="utf-8")).get("model") or {}
        configs[model.get("model_type", name.partition("/")[0])][name] = describe_config(file)
    return [{"model_type": name, **entry, "configs": configs[name]} for name, entry in described.items()]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows with aligned columns; the last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

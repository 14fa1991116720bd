"""The command `hf-ngsan models`: lists the packaged models."""

import argparse
import json
from pathlib import Path
from typing import Any

from ..io.packaged import packaged_models
from ..registry import MODEL_TYPES
from .arguments import json_of

SUMMARY = """List the packaged models.

Every command accepts the name of a packaged model. hf-ngsan configs lists the training configs."""
EPILOG = """examples:
  hf-ngsan models"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object with all scores")


def run(options: argparse.Namespace) -> None:
    packaged = [model_entry(folder) for folder in packaged_models().values()]
    if options.json:
        print(json_of({"packaged": packaged}))
        return
    rows = [["NAME", "TYPE", "TASK", "SIZE", "DATA", "SCORE", "LICENCE"]]
    for model in packaged:
        metric = model["metric"]
        score = f"{metric} {model['scores'][metric]:g}" if metric in model["scores"] else "-"
        data = " ".join(filter(None, [model["data"], model["split"]])) or "-"
        kind = [model["name"], model["model_type"], model["task"] or "-"]
        rows.append([*kind, f"{model['bytes'] / 1e6:.1f} MB", data, score, model["license"] or "-"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


def model_entry(folder: Path) -> dict[str, Any]:
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

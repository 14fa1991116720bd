"""The command `hf-ngsan models`: the trained models that the package brings, and the architectures that it trains."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from .arguments import json_of

SUMMARY = """List the packaged models, and what can be trained.

Each packaged model has its size on disk, the data and main score of its card, and its licence; every command takes its
name as a model. Architectures are listed with the number of packaged training configs."""
EPILOG = """examples:
  hf-ngsan models
  hf-ngsan models --type captioning
  hf-ngsan models --type mhsan
  hf-ngsan models --json

With --type, the training configs are listed too; hf-ngsan train --config NAME makes a model by one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--type", metavar="NAME", help="only those of a model type or task, such as ngsan or retrieval")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every score and config")


def run(options: argparse.Namespace) -> None:
    from ..loading.catalogue import architectures, packaged_catalogue

    packaged, trainable = packaged_catalogue(options.type), architectures(options.type)
    if options.json:
        print(json_of({"packaged": list(map(asdict, packaged)), "architectures": list(map(asdict, trainable))}))
        return
    rows = [["PACKAGED", "TYPE", "TASK", "SIZE", "DATA", "SCORE", "LICENCE"]]
    for model in packaged:
        score = "-" if model.score is None else f"{model.metric} {model.score:g}"
        data = " ".join(filter(None, [model.data, model.split])) or "-"
        size = f"{model.bytes / 1e6:.1f} MB"
        rows.append([model.name, model.model_type, model.task or "-", size, data, score, model.license or "-"])
    print(table(rows) if packaged else "No packaged model is of this type.")
    rows = [["TRAINABLE", "TASK", "CONFIGS", "WHAT"]]
    for entry in trainable:
        paper = "" if entry.paper is None else f" ({entry.paper.authors}, {entry.paper.venue})"
        rows.append([entry.model_type, entry.task or "-", str(len(entry.configs)), f"{entry.name}{paper}"])
    print(f"\n{table(rows)}")
    if options.type is not None:
        configs = [[name, what] for entry in trainable for name, what in entry.configs.items()]
        print(f"\n{table([['CONFIG', ''], *configs])}")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows with aligned columns; the last one is as wide as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

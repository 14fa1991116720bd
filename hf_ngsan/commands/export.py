"""The command `hf-ngsan export`: a captioner or dual encoder as graphs of ONNX."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from ..io.packaged import find_model_folder
from .arguments import DATASETS, add_shared, check_data, check_new_folder

SUMMARY = """Export a captioner or a dual encoder to ONNX.

The exported captioner needs neither this package nor torch."""
EPILOG = f"""examples:
  hf-ngsan export --model runs/scenes --output exported --check
  hf-ngsan export --model captioner --output exported --check --data images:photos
  hf-ngsan export --model DUAL_ENCODER --output exported
  hf-ngsan export --model captioner
  python exported/captioner.py photo.jpg --num-beams 3

The folder holds the encoder, one step of the decoder with its cache, their settings, and captioner.py, a program for
greedy and beam search that needs only NumPy and ONNX Runtime. An exported dual encoder takes the place of its model in
hf-ngsan index, search and evaluate. Without --output, graphs are written into onnx/ of the model's folder, and hf-ngsan
caption and search answer by them without PyTorch. The command needs the extra export.

{DATASETS}"""
IMAGES = 64
"""Default number of images to check."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model", "--split", "--limit")
    add_shared(parser, "--output", metavar="DIR", help="new folder of the export (onnx/ in the folder of the model)")
    check = "caption images with the model and with the exported files; exit code 1 if they differ"
    parser.add_argument("--check", action="store_true", help=check)
    add_shared(parser, "--data", required=False, help="dataset to check on (that of the training run)")


def run(options: argparse.Namespace) -> int:
    check_data(options.data)
    if options.output is not None:
        check_new_folder(options.output)
    from ..exporting import check_exporter
    from ..loading.models import load_config, task_of

    check_exporter()
    task = task_of(load_config(options.model))
    if options.output is not None and task != "retrieval":
        return export_captioner(options)
    if options.check or options.data is not None or options.limit is not None:
        raise ValueError(
            "A dual encoder, and graphs in the folder of a model, have no options of a check; leave them out."
        )
    return export_beside(options, task) if options.output is None else export_dual_encoder(options)


def export_captioner(options: argparse.Namespace) -> int:
    from ..exporting import MAX_DIFFERENCE, Captioner, compare, write_exported_captioner
    from ..io.folders import write_folder_atomically
    from ..loading.models import load_captioner
    from ..tasks.caption_rows import load_rows, rows_for

    model, processor = load_captioner(options.model)
    model = model.float()
    rows = None
    if options.check:
        spec, split = options.data, options.split
        if spec is None:
            spec, split = data_of(options.model, model, split)
        rows = load_rows(spec, split, with_captions=False, limit=options.limit or IMAGES)
        rows = rows_for(model, processor, rows, spec)
    write = partial(write_exported_captioner, model, processor)
    write_folder_atomically(Path(options.output), write, manifest=False)
    print(f"{options.output} captions without this package: python {Path(options.output) / 'captioner.py'} --help")
    if rows is None:
        return 0
    others, difference = compare(model, processor, Captioner(options.output), rows)
    print(f"Compared on {spec}, split {split}.")
    for beams, number in others.items():
        differ = f"{number} captions differ" if number else "the same captions"
        print(f"{len(rows)} images, {beams} beam{'s' if beams > 1 else ''}: {differ}.")
    print(f"Log-probabilities differ by {difference:.1e} at most.")
    return 0 if difference <= MAX_DIFFERENCE and not any(others.values()) else 1


def data_of(name: str, model: Any, split: str) -> tuple[str, str]:
    """Returns the default dataset and split of a check: those of the training run, else synthetic scenes."""
    from ..data.scenes import FEATURE_SIZE
    from ..sharing.cards import run_of
    from ..tasks.registry import load_training_config
    from ..training.output_folder import TRAINING_CONFIG

    run = run_of(Path(find_model_folder(name)))
    if run is not None:
        data = load_training_config(run / TRAINING_CONFIG).data
        return data.spec, data.validation_split or split
    if model.config.vision_config is not None:
        return "scenes:images=true", split
    if model.config.visual_feature_size == FEATURE_SIZE:
        return "scenes", split
    raise ValueError(f"{name} does not record what it was trained on; give images to check it on with --data.")


def export_beside(options: argparse.Namespace, task: str | None) -> int:
    """Writes graphs into the folder of the model itself."""
    from ..exporting.onnx_folder import write_graphs_beside
    from ..loading.models import load_model
    from ..loading.provenance import model_fingerprint

    folder = Path(find_model_folder(options.model))
    if not folder.is_dir():
        raise ValueError(f"{options.model} is not a folder on this machine; name a new folder with --output.")
    if task not in ("captioning", "retrieval"):
        raise ValueError(f"{options.model} is neither a captioner nor a dual encoder, which are exported.")
    model, processor = load_model(folder)
    fingerprint = model_fingerprint(model, processor) if task == "retrieval" else None
    write_graphs_beside(model.float(), processor, folder, fingerprint)
    command = "hf-ngsan search INDEX TEXT" if task == "retrieval" else f"hf-ngsan caption --model {options.model} IMAGE"
    print(f"{folder / 'onnx'} answers without PyTorch: {command}")
    return 0


def export_dual_encoder(options: argparse.Namespace) -> int:
    from ..exporting.folder import write_exported_dual_encoder
    from ..guests.dual_encoders import is_exported
    from ..io.folders import write_folder_atomically
    from ..loading.models import load_model

    if is_exported(find_model_folder(options.model)):
        raise ValueError(f"{options.model} is an exported dual encoder already.")
    model, processor = load_model(options.model, "retrieval")
    differences: list[float] = []

    def write(folder: Path) -> None:
        differences.append(write_exported_dual_encoder(model.float(), processor, folder))

    write_folder_atomically(Path(options.output), write, manifest=False)
    print(f"{options.output} embeds images and texts as the model does (largest difference {differences[0]:.1e}).")
    print(f"Index images with it: hf-ngsan index --model {options.output} --images FOLDER --output INDEX")
    return 0

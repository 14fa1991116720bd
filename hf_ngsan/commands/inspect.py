"""The command `hf-ngsan inspect`: the kind, the contents and the first problem of a file or folder."""

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.formats import FORMATS
from ..io.files import read_json_or_none
from ..io.packaged import folder_of_packaged
from .arguments import check_figure_file, user_path, whole_number

if TYPE_CHECKING:
    from ..data.inspection import Findings

SUMMARY = """Describe a file or folder, and name its first problem.

It may hold images, features, annotations, a model, a training run or a search index."""
EPILOG = """examples:
  hf-ngsan inspect trainval_36.tsv
  hf-ngsan inspect features --figure regions.png --images photos
  hf-ngsan inspect runs/scenes
  hf-ngsan inspect photos
  hf-ngsan inspect ngsan-flickr8k --self-test
  hf-ngsan inspect index --verify

The command reads all data to find the first problem."""
BLANK_SIDE = 400
"""Width of the blank image that is drawn if the data have no image, in pixels."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=user_path, metavar="PATH", help="file or folder, or a packaged model")
    parser.add_argument("--from", dest="source_format", choices=list(FORMATS), help="format of features (recognised)")
    parser.add_argument("--figure", type=user_path, metavar="FILE", help="draw the boxes of an image and its captions")
    parser.add_argument("--image-id", type=whole_number, metavar="ID", help="id of the image to draw (the first)")
    parser.add_argument(
        "--images",
        type=user_path,
        metavar="DIR",
        help="with --figure: folder of the images, if the data have no images",
    )
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="compare the outputs of a model with the record in its folder; exit code 1 if they differ",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare all files of an index, features or a training run with their checksums; exit code 2 and the name "
        "of the file if one differs",
    )


def run(options: argparse.Namespace) -> int:
    if options.self_test:
        return self_test(options.path)
    if options.verify:
        print(f"{options.path}: {verify(Path(options.path))}, unchanged")
    else:
        show(options)
    return 0


def self_test(name: str) -> int:
    """Prints whether the outputs of a model are those recorded in its folder; returns 1 if they differ."""
    from ..loading.models import find_model_folder, load_model
    from ..loading.self_test import run_self_test

    folder = find_model_folder(name)
    result = run_self_test(*load_model(folder), folder)
    print(f"{folder}: {result}")
    return 0 if result.passed else 1


def verify(path: Path) -> str:
    """Compares the files of a folder with their checksums, and returns a description of what was compared.

    Raises:
        ValueError, OSError: a file is damaged or missing, or the folder has no checksums.
    """
    from ..io.folders import MANIFEST, check_folder, find_folder
    from ..io.shards import RECORDS, verify_shards
    from ..retrieval import IndexFolder
    from ..retrieval.index_folder import DESCRIPTION
    from ..retrieval.local import FOLDER
    from ..training.output_folder import Checkpoints

    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a folder; name an index, extracted features, or a training run.")
    if (path / DESCRIPTION).is_file():
        index = IndexFolder.open(path)
        for number in range(index.num_shards):
            index.shard(number).verify()
        graph = find_folder(path / FOLDER)
        if graph.is_dir():
            check_folder(graph)
        return f"{counted(index.num_shards, 'shard')}{' and the graph' if graph.is_dir() else ''} of a search index"
    if (path / RECORDS).is_dir():
        return f"{counted(verify_shards(path), 'shard')} of features"
    checkpoints = Checkpoints(path / "checkpoints").all()
    for checkpoint in checkpoints:
        check_folder(checkpoint)
    others = [folder for folder in (path, *path.iterdir()) if (folder / MANIFEST).is_file()]
    for folder in others:
        check_folder(folder)
    if not (checkpoints or others):
        raise ValueError(
            f"{path} has no checksums; name an index, extracted features, or a training run with checkpoints."
        )
    return f"{counted(len(checkpoints) + len(others), 'folder')} of a training run"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show(options: argparse.Namespace) -> None:
    from ..retrieval.index_folder import DESCRIPTION

    path = Path(folder_of_packaged(options.path))
    if options.figure:
        check_figure_file(options.figure)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; name a file or folder.")
    kinds = (
        ("model", ("config.json",), lines_of_model),
        ("training run", ("history.jsonl", "training_config.yaml"), lines_of_run),
        ("search index", (DESCRIPTION,), lines_of_index),
    )
    for kind, files, lines_of in kinds:
        if any((path / name).is_file() for name in files):
            tell(path, kind, lines_of(path))
            return
    findings = inspect(path, options)
    tell(path, findings.kind + made_by(path), findings.lines())
    if options.figure:
        draw(findings, options)


def inspect(path: Path, options: argparse.Namespace) -> "Findings":
    """Returns the findings in a folder of images, or in data that [`~hf_ngsan.data.inspection.inspect_data`] reads."""
    from ..data.formats import some_files
    from ..data.images.sources import holds_photographs, is_metadata, is_saved
    from ..data.inspection import inspect_data
    from ..extraction.image_list import inspect_images

    if not (options.source_format or not path.is_dir() or is_saved(path)):
        is_of_features = any(not is_metadata(file.name) for file in some_files(path))
        if not is_of_features and holds_photographs(path):
            return inspect_images(path)
    return inspect_data(path, options.source_format, options.image_id)


def tell(path: Path, kind: str, lines: list[str]) -> None:
    print(f"{path}: {kind}")
    for line in lines:
        print(f"  {line}")


def made_by(path: Path) -> str:
    """Returns the recorded backbone or inputs of the features in a folder, as the end of a sentence."""
    for name, key, words in (("extraction.json", "backbone", "extracted with"), ("conversion.json", "inputs", "of")):
        recorded = read_json_or_none(path / name)
        if isinstance(recorded, dict) and key in recorded:
            value = recorded[key]
            return f", {words} {', '.join(map(str, value)) if isinstance(value, list) else value}"
    return ""


def lines_of_model(path: Path) -> list[str]:
    """Describes a model; its weights are counted, not loaded."""
    from safetensors import safe_open

    from ..loading.models import ModelFolderError, count_parameters, read_config_file
    from ..registry import MODEL_TYPES

    config = read_config_file(str(path))
    lines = [f"type: {config.get('model_type')} ({', '.join(config.get('architectures') or ['no architecture'])})"]
    for field, words in (("visual_feature_size", "feature dimension"), ("vocab_size", "vocabulary")):
        if config.get(field) is not None:
            lines.append(f"{words}: {config[field]}")
    if config.get("vision_config"):
        lines.append("has a vision encoder and reads images")
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise ModelFolderError(f"{path} has a configuration but no weights (*.safetensors).")
    number = 0
    for file in files:
        with safe_open(file, framework="np") as weights:
            number += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    in_files = f"in {counted(len(files), 'file')}"
    if config.get("model_type") not in MODEL_TYPES:
        return [*lines, f"weights: {number:,} numbers {in_files}"]
    return [*lines, f"parameters: {count_parameters(path):,}", f"weights: {in_files}"]


def lines_of_index(path: Path) -> list[str]:
    """Describes a search index: its contents, and shards that are missing or damaged."""
    from ..retrieval import IndexFolder, IndexFolderError
    from ..retrieval.index_folder import read_description

    description = read_description(path)
    index, problems = IndexFolder(path, description), []
    number_found = skipped = 0
    missing = index.missing_shards()
    if missing:
        problems.append(
            f"{len(missing)} of {index.num_shards} shards are missing; the same hf-ngsan index command continues it."
        )
    for number in sorted({*range(index.num_shards)} - {*missing}):
        try:
            shard = index.shard(number)
            shard.verify()
        except IndexFolderError as error:
            problems.append(str(error))
            continue
        number_found += len(shard.items.names)
        skipped += len(shard.items.skipped)
    more = f" ({len(problems)} in all)" if len(problems) > 1 else ""
    return [
        f"{number_found} images of {description.num_items} in {description.source}",
        f"skipped: {skipped}",
        f"embedding dimension: {description.dimension}",
        f"model: {description.model}",
        f"first problem{more}: {problems[0]}" if problems else "no problem found",
    ]


def lines_of_run(path: Path) -> list[str]:
    """Describes the progress and the models of a training run."""
    lines, history = ["no epoch is finished"], path / "history.jsonl"
    epochs = history.read_text(encoding="utf-8").splitlines() if history.is_file() else []
    if epochs:
        last = json.loads(epochs[-1])
        scores = ", ".join(f"{name} {value:.4f}" for name, value in last.items() if isinstance(value, float))
        lines = [f"{counted(len(epochs), 'epoch')}; the last: {scores}"]
    for name in ("best", "last"):
        if (path / name / "config.json").is_file():
            lines += [f"{name} model, {line}" for line in lines_of_model(path / name)]
    return lines


def draw(findings: "Findings", options: argparse.Namespace) -> None:
    """Draws the regions and captions of one image into the file of --figure."""
    import numpy as np

    from ..visualization import save_figure
    from ..visualization.figures import plot_regions

    row = findings.sample
    if row is None or "visual_boxes" not in row:
        which = f"image {options.image_id}" if options.image_id is not None else "image with boxes"
        raise ValueError(f"{options.path} has no {which} to draw.")
    image = image_of(row, options.images)
    if image is None:
        width, height = (max(int(row.get(side, BLANK_SIDE)), 1) for side in ("width", "height"))
        image = np.full((max(BLANK_SIDE * height // width, 1), BLANK_SIDE, 3), 255, np.uint8)
    save_figure(plot_regions(image, row["visual_boxes"], row.get("captions", [])), options.figure)
    print(f"{options.figure}: image {row['image_id']} with {len(row['visual_boxes'])} boxes")


def image_of(row: dict[str, Any], folder: str | None) -> Any:
    """Returns the image of a row: from the file in a folder whose name ends in its id, or else from the row itself."""
    from ..data.coco_files import number_at_the_end
    from ..data.images import is_image, visible_files
    from ..data.inspection import sample_image
    from ..models.image_processing_captioning import load_image

    if folder is None:
        return sample_image(row)
    for name in filter(is_image, visible_files(Path(folder))):
        if number_at_the_end(name) == row["image_id"]:
            return load_image(Path(folder) / name)
    raise FileNotFoundError(f"{folder} has no image whose name ends in {row['image_id']}.")

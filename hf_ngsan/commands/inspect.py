"""The command `hf-ngsan inspect`: the kind, the contents and the first problem of a file or folder."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from ..data.formats import FORMATS
from ..io.files import read_json_or_none
from ..io.packaged import folder_of_packaged
from .arguments import check_files, check_outputs, user_path, whole_number

SUMMARY = """Describe a file or folder, and name its first problem.

It may hold images, features, annotations, a model, a training run or a search index."""
EPILOG = """examples:
  hf-ngsan inspect trainval_36.tsv
  hf-ngsan inspect features --figure regions.png --images photos
  hf-ngsan inspect runs/scenes
  hf-ngsan inspect ngsan-flickr8k --self-test
  hf-ngsan inspect index --verify

The command reads all data to find the first problem."""
BLANK_SIDE = 400  # of the image that is drawn if the data have none, in pixels


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", type=user_path, metavar="PATH", help="file or folder, or a packaged model")
    add("--from", dest="source_format", choices=list(FORMATS), help="format of features (recognised)")
    add("--figure", type=user_path, metavar="FILE", help="draw the boxes of an image and its captions")
    add("--image-id", type=whole_number, metavar="ID", help="id of the image to draw (the first)")
    add("--images", type=user_path, metavar="DIR", help="with --figure: folder of images, if the data have none")
    test = "compare a model's outputs with its record; exit code 1 if they differ"
    add("--self-test", action="store_true", help=test)
    add("--verify", action="store_true", help="compare an index, features or a training run with their checksums")


def run(options: argparse.Namespace) -> int:
    if options.self_test:
        return self_test(options.path)
    if options.verify:
        print(f"{options.path}: {verify(Path(options.path))}, unchanged")
        return 0
    path = Path(folder_of_packaged(options.path))
    check_files(str(path))
    check_outputs({"--figure": options.figure})
    from ..retrieval.index_folder import DESCRIPTION

    if (path / "config.json").is_file():
        kind, lines = "model", lines_of_model(path)
    elif (path / "history.jsonl").is_file() or (path / "training_config.yaml").is_file():
        kind, lines = "training run", lines_of_run(path)
    elif (path / DESCRIPTION).is_file():
        kind, lines = "search index", lines_of_index(path)
    else:
        from ..data.inspection import inspect_data

        findings = inspect_data(path, options.source_format, options.image_id)
        kind, lines = findings.kind + made_by(path), findings.lines()
        if options.figure:
            lines.append(draw(findings, options))
    print(f"{path}: {kind}", *lines, sep="\n  ")
    return 0


def self_test(name: str) -> int:
    """Prints whether the outputs of a model are those recorded in its folder; returns 1 if they differ."""
    from ..loading.hub import run_self_test
    from ..loading.models import find_model_folder, load_model

    folder = find_model_folder(name)
    result = run_self_test(*load_model(folder), folder)
    print(f"{folder}: {result}")
    return 0 if result.passed else 1


def verify(path: Path) -> str:
    """Compares the files of a folder with their checksums, and returns a description of what was compared."""
    from ..io.folders import MANIFEST, check_folder, find_folder
    from ..io.shards import RECORDS, verify_shards
    from ..retrieval import IndexFolder
    from ..retrieval.backends import FOLDER
    from ..retrieval.index_folder import DESCRIPTION

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
    folders = [file.parent for pattern in (MANIFEST, f"*/{MANIFEST}", f"*/*/{MANIFEST}") for file in path.glob(pattern)]
    for folder in folders:
        check_folder(folder)
    if not folders:
        raise ValueError(f"{path} has no checksums; name the folder of an index, of features, or of a training run.")
    return f"{counted(len(folders), 'folder')} of a training run"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def made_by(path: Path) -> str:
    """Returns the recorded backbone or inputs of the features in a folder, as the end of a sentence."""
    extraction, conversion = (read_json_or_none(path / f"{name}.json") for name in ("extraction", "conversion"))
    if isinstance(extraction, dict):
        return f", extracted with {extraction['backbone']}"
    return f", of {', '.join(conversion['inputs'])}" if isinstance(conversion, dict) else ""


def lines_of_model(path: Path) -> list[str]:
    """Describes a model without loading its weights."""
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
    if config.get("model_type") in MODEL_TYPES:
        lines.append(f"parameters: {count_parameters(path):,}")
    return [*lines, f"weights: in {counted(len(files), 'file')}"]


def lines_of_run(path: Path) -> list[str]:
    """Describes the progress and the models of a training run."""
    history = path / "history.jsonl"
    epochs = history.read_text(encoding="utf-8").splitlines() if history.is_file() else []
    last = json.loads(epochs[-1]) if epochs else {}
    told = ", ".join(f"{name} {value:.4f}" for name, value in last.items() if isinstance(value, float))
    lines = [f"{counted(len(epochs), 'epoch')}; the last: {told}" if epochs else "no epoch is finished"]
    for name in ("best", "last"):
        if (path / name / "config.json").is_file():
            lines += [f"{name} model, {line}" for line in lines_of_model(path / name)]
    return lines


def lines_of_index(path: Path) -> list[str]:
    """Describes a search index; raises an IndexFolderError for a shard that is damaged."""
    from ..retrieval import IndexFolder
    from ..retrieval.index_folder import read_description

    index = IndexFolder(path, read_description(path))
    missing = index.missing_shards()
    shards = [index.shard(number) for number in range(index.num_shards) if number not in missing]
    for shard in shards:
        shard.verify()
    images = sum(len(shard.items.names) for shard in shards)
    problem = f"first problem: {len(missing)} of {index.num_shards} shards are missing; hf-ngsan index continues them"
    return [
        f"{images} images of {index.description.num_items} in {index.description.source}",
        f"skipped: {sum(len(shard.items.skipped) for shard in shards)}",
        f"embedding dimension: {index.description.dimension}",
        f"model: {index.description.model}",
        problem if missing else "no problem found",
    ]


def draw(findings: Any, options: argparse.Namespace) -> str:
    """Draws the regions and captions of one image into the file of --figure; returns what it shows."""
    import numpy as np

    from ..data.coco_files import number_at_the_end
    from ..data.images import is_image, visible_files
    from ..models.image_processing_captioning import load_image
    from ..visualization import save_figure
    from ..visualization.figures import plot_regions

    row = findings.sample
    if row is None or "visual_boxes" not in row:
        which = f"image {options.image_id}" if options.image_id is not None else "image with boxes"
        raise ValueError(f"{options.path} has no {which} to draw.")
    image: Any = load_image(row["image"]) if "image" in row else None
    if options.images is not None:
        names = filter(is_image, visible_files(Path(options.images)))
        name = next((name for name in names if number_at_the_end(name) == row["image_id"]), f"{row['image_id']}.jpg")
        image = load_image(os.path.join(options.images, name))
    if image is None:
        width, height = (max(int(row.get(side, BLANK_SIDE)), 1) for side in ("width", "height"))
        image = np.full((max(BLANK_SIDE * height // width, 1), BLANK_SIDE, 3), 255, np.uint8)
    save_figure(plot_regions(image, row["visual_boxes"], row.get("captions", [])), options.figure)
    return f"{options.figure}: image {row['image_id']} with {len(row['visual_boxes'])} boxes"

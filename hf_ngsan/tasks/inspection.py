"""What a file or folder of any kind holds, and its first problem."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..data.coco_files import number_at_the_end
from ..data.images import sorted_files
from ..data.images.sources import holds_videos, is_saved
from ..data.inspection import PROBLEM, Findings, inspect_data, inspect_images
from ..io.files import read_json_or_none
from ..io.folders import MANIFEST, check_folder, find_folder
from ..io.packaged import folder_of_packaged
from ..io.shards import RECORDS, verify_shards
from ..loading.models import ModelFolderError, count_parameters, read_config_file
from ..models.images import load_image
from ..models.videos import read_frames
from ..registry import MODEL_TYPES
from ..retrieval import IndexFolder
from ..retrieval.backends import FOLDER
from ..retrieval.index_folder import DESCRIPTION, read_description
from ..visualization import save_figure
from ..visualization.figures import plot_regions

BLANK_SIDE = 400  # of the image that is drawn if the data have none, in pixels


def inspect(
    path: str | os.PathLike,
    *,
    source_format: str | None = None,
    figure: str | os.PathLike | None = None,
    image_id: int | None = None,
    images: str | os.PathLike | None = None,
) -> list[str]:
    """Returns the kind of a file or folder, and a line for each fact about it, its first problem among them.

    It reads all data. Files that were written with checksums are compared with them.

    Args:
        path: images, videos, features, annotations, a model, a training run or a search index; `images:FOLDER` and the
            like mean the folder.
        source_format: format of features, see [`~hf_ngsan.data.formats.FEATURE_FORMATS`]; recognised by default.
        figure: file in which the boxes and captions of an image are drawn.
        image_id: id of that image, by default the first; `images` is a folder that has it, where the data have none.

    Raises:
        ValueError, OSError: there is nothing to read or to draw; a model has no weights; a file has not its checksum.
    """
    reader, _, place = str(path).partition(":")
    is_spec = reader in ("images", "videos", "features") and not os.path.exists(path)
    path = Path(os.path.expanduser(place) if is_spec else folder_of_packaged(str(path)))
    if (path / "config.json").is_file():
        return ["model", *lines_of_model(path)]
    if (path / "history.jsonl").is_file() or (path / "training_config.yaml").is_file():
        return ["training run", *lines_of_run(path)]
    if (path / DESCRIPTION).is_file():
        return ["search index", *lines_of_index(path)]
    if is_saved(path) and (path / RECORDS).is_dir():
        verify_shards(path)
    if source_format is None and (reader == "videos" or holds_videos(path)):
        findings = inspect_images(path, lambda file: read_frames(file, num_frames=1).images[0])
    else:
        findings = inspect_data(path, source_format, image_id)
    lines = [findings.kind + made_by(path), *findings.lines()]
    return lines if figure is None else [*lines, draw(path, findings, figure, images)]


def made_by(path: Path) -> str:
    """Returns the recorded backbone or inputs of the features in a folder, as the end of a sentence."""
    extraction, conversion = (read_json_or_none(path / f"{name}.json") for name in ("extraction", "conversion"))
    if isinstance(extraction, dict):
        return f", extracted with {extraction['backbone']}"
    return f", of {', '.join(conversion['inputs'])}" if isinstance(conversion, dict) else ""


def lines_of_model(path: Path) -> list[str]:
    config = read_config_file(str(path))
    lines = [f"type: {config.get('model_type')} ({', '.join(config.get('architectures') or ['no architecture'])})"]
    for field, words in (("visual_feature_size", "feature dimension"), ("vocab_size", "vocabulary")):
        if config.get(field) is not None:
            lines.append(f"{words}: {config[field]}")
    if config.get("vision_config"):
        of_clips = config["vision_config"].get("kind") == "frames"
        lines.append(f"has a vision encoder and reads {'videos' if of_clips else 'images'}")
    files = sorted(path.glob("[!.]*.safetensors"))
    if not files:
        raise ModelFolderError(f"{path} has a configuration but no weights (*.safetensors).")
    if config.get("model_type") in MODEL_TYPES:
        lines.append(f"parameters: {count_parameters(path):,}")
    return [*lines, f"weights: in {counted(len(files), 'file')}"]


def lines_of_run(path: Path) -> list[str]:
    for manifest in path.rglob(MANIFEST):
        check_folder(manifest.parent)
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
    index = IndexFolder(path, read_description(path))
    missing = index.missing_shards()
    shards = [index.shard(number) for number in range(index.num_shards) if number not in missing]
    for shard in shards:
        shard.verify()
    graph = find_folder(path / FOLDER)
    if graph.is_dir():
        check_folder(graph)
    images = sum(len(shard.items.names) for shard in shards)
    problem = f"{PROBLEM}: {len(missing)} of {index.num_shards} shards are missing; hf-ngsan index continues them"
    return [
        f"{images} images of {index.description.num_items} in {index.description.source}",
        f"skipped: {sum(len(shard.items.skipped) for shard in shards)}",
        f"embedding dimension: {index.description.dimension}",
        f"model: {index.description.model}",
        problem if missing else "no problem found",
    ]


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def draw(path: Path, findings: Findings, figure: str | os.PathLike, images: str | os.PathLike | None) -> str:
    """Draws the regions and captions of the sample into a file; returns what it shows."""
    row = findings.sample
    if row is None or "visual_boxes" not in row:
        which = "image with boxes" if findings.sample_id is None else f"image {findings.sample_id}"
        raise ValueError(f"{path} has no {which} to draw.")
    image: Any = load_image(row["image"]) if "image" in row else None
    if images is not None:
        names = sorted_files(Path(images))
        name = next((name for name in names if number_at_the_end(name) == row["image_id"]), f"{row['image_id']}.jpg")
        image = load_image(os.path.join(images, name))
    if image is None:
        width, height = (max(int(row.get(side, BLANK_SIDE)), 1) for side in ("width", "height"))
        image = np.full((max(BLANK_SIDE * height // width, 1), BLANK_SIDE, 3), 255, np.uint8)
    save_figure(plot_regions(image, row["visual_boxes"], row.get("captions", [])), figure)
    return f"{figure}: image {row['image_id']} with {len(row['visual_boxes'])} boxes"

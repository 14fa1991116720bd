"""Describes a file or folder of any kind, and finds its first problem."""

import json
import os
from pathlib import Path

from ..data.images.sources import holds_videos, is_saved
from ..data.inspection import PROBLEM, inspect_data, inspect_images
from ..io.files import read_json_or_none
from ..io.folders import MANIFEST, check_folder
from ..io.packaged import folder_of_packaged
from ..io.shards import RECORDS, verify_shards
from ..loading.models import ModelFolderError, count_parameters, read_config_file
from ..models.videos import read_frames
from ..registry import MODEL_TYPES
from ..retrieval import IndexFolder
from ..retrieval.index_folder import DESCRIPTION, read_description


def inspect(path: str | os.PathLike, *, source_format: str | None = None) -> list[str]:
    """Returns the kind of a file or folder, and a line for each fact about it, including its first problem.

    All data are read, and files with a recorded checksum are compared with it.

    Args:
        path: images, videos, features, annotations, a model, a training run or a search index; specs such as
            `images:FOLDER` mean the folder.
        source_format: format of features, see [`~hf_ngsan.data.formats.FEATURE_FORMATS`]; detected by default.

    Raises:
        ValueError, OSError: there is nothing to read, a model has no weights, or a checksum does not match.
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
        findings = inspect_data(path, source_format)
    return [findings.kind + made_by(path), *findings.lines()]


def made_by(path: Path) -> str:
    """Returns the end of a sentence with the recorded backbone or inputs of the features in a folder."""
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
        reads_clips = config["vision_config"].get("kind") == "frames"
        lines.append(f"has a vision encoder and reads {'videos' if reads_clips else 'images'}")
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
    text = ", ".join(f"{name} {value:.4f}" for name, value in last.items() if isinstance(value, float))
    lines = [f"{counted(len(epochs), 'epoch')}; the last: {text}" if epochs else "no finished epoch"]
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
    images = sum(len(shard.items.names) for shard in shards)
    problem = f"{PROBLEM}: {len(missing)} of {index.num_shards} shards are missing; run hf-ngsan index again"
    return [
        f"{images} images of {index.description.num_items} in {index.description.source}",
        f"skipped: {sum(len(shard.items.skipped) for shard in shards)}",
        f"embedding dimension: {index.description.dimension}",
        f"model: {index.description.model}",
        problem if missing else "no problem found",
    ]


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""The trained models that the package brings, by name."""

from pathlib import Path

from .packaged_files import packaged_folder

CAPTIONER = "ngsan-flickr8k"
"""Captions photographs where no other model is named."""


def packaged_models() -> dict[str, Path]:
    """Returns the folders of the trained models by name, such as "ngsan-flickr8k"."""
    folder = packaged_folder("checkpoints", "checkpoints")
    return {file.parent.name: file.parent for file in sorted(folder.glob("*/config.json"))}

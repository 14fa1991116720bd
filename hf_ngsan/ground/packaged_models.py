"""The trained models that the package brings, by name."""

import os
from pathlib import Path
from typing import Any

from .packaged_files import packaged_folder

CAPTIONER = "ngsan-flickr8k"
"""Captions photographs where no other model is named."""


def packaged_models() -> dict[str, Path]:
    """Returns the folders of the trained models by name, such as "ngsan-flickr8k"."""
    folder = packaged_folder("checkpoints", "checkpoints")
    return {file.parent.name: file.parent for file in sorted(folder.glob("*/config.json"))}


def folder_of_packaged(name: Any) -> Any:
    """Returns the folder of a packaged model for its name; what is no such name, or exists here, as it is."""
    if (
        isinstance(name, str | os.PathLike)
        and not os.path.exists(name)
        and (folder := packaged_models().get(str(name)))
    ):
        return str(folder)
    return name

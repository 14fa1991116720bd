"""Folders of models, found by name without torch and transformers."""

import os
import re
from pathlib import Path

from .packaged_models import folder_of_packaged

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


class ModelFolderError(ValueError):
    """A folder without a complete model; the message names it and what is missing."""


def find_model_folder(name: str | os.PathLike) -> str:
    """Returns the folder of a model: `name` itself, or `best`, else `last`, in the folder of a training run.

    The name of a packaged model becomes its folder; a name that may be one on the Hub is returned unchanged.

    Raises:
        FileNotFoundError: no such folder.
        ModelFolderError: a folder without a model.
    """
    folder = Path(os.path.expanduser(folder_of_packaged(name)))
    if not folder.exists():
        if HUB_NAME.fullmatch(str(name)) and not folder.parent.is_dir():
            return str(name)
        raise FileNotFoundError(f"There is no model folder {folder}.")
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is a file; give the folder of a model, such as {folder.parent}.")
    for candidate in (folder, folder / "best", folder / "last"):
        if (candidate / "config.json").is_file():
            return str(candidate)
    raise ModelFolderError(
        f"{folder} holds no model (config.json is missing); give a folder that save_pretrained or a training run wrote."
    )


def is_model(place: str) -> bool:
    """Returns whether a path or name is a model on this machine."""
    try:
        return os.path.isdir(find_model_folder(place))
    except (FileNotFoundError, ModelFolderError):
        return False

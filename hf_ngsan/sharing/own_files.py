"""Refusal of model folders with links, or names in their files, to places outside the folder.

A folder from a stranger could otherwise make `hf-ngsan push` upload private files of this machine.
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..io.files import is_stream
from ..io.weight_sources import INITIALIZED_FROM
from ..loading.models import ModelFolderError

SETTINGS = ("config.json", ".index.json")
"""Endings of JSON files that can name other files."""
NAMES_OF_FILES = ("weight_map", "fast_tokenizer_files", "configuration_files", "transformers_weights")
"""Fields that name files of the folder."""
MODELS_ELSEWHERE = ("audio_tokenizer", "audio_tokenizer_name_or_path", "base_model_name_or_path")
"""Fields that name another model that transformers would load."""


def refuse_files_elsewhere(folder: Path, names: Iterable[str] | None = None) -> None:
    """Refuses a folder with links to, or names of, files elsewhere, before any file is read.

    Code may be a link, since nothing reads it: a checkpoint gets the code of this package.

    Args:
        folder: folder of a model or a training run; may be a link itself.
        names: files and folders in it to check; None = all.

    Raises:
        ModelFolderError: a link leads out of the folder, or a file names a file or a model elsewhere.
    """
    root = os.path.realpath(folder)
    for path in files_and_folders(folder, names):
        target = os.path.realpath(path)
        is_code = path.suffix == ".py" and not path.is_dir()
        if not Path(target).is_relative_to(root) and not is_code:
            raise ModelFolderError(
                f"{folder}: {path.relative_to(folder)} is a link to {target}, and nothing outside the folder is read; "
                "put a copy of the file there."
            )
        if is_stream(path):
            raise ModelFolderError(f"{folder}: {path.relative_to(folder)} is a pipe or a device; put a file there.")
        if path.parent == folder and path.name.endswith(SETTINGS) and path.is_file():
            refuse_names_elsewhere(path)


def files_and_folders(folder: Path, names: Iterable[str] | None) -> Iterator[Path]:
    """Yields all paths in a folder, or under some names in it, without following links."""
    for path in sorted(folder.iterdir()) if names is None else (folder / name for name in names):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from files_and_folders(path, None)


def refuse_names_elsewhere(file: Path) -> None:
    """Raises a ModelFolderError if a JSON file names a file or a model that is not in its folder."""
    try:
        settings = json.loads(file.read_bytes())
    except (ValueError, RecursionError):  # loading the model reports it
        return
    for mapping in mappings_in(settings):
        left_out = mapping.get("save_frozen_weights") is False
        elsewhere = [
            (field, name)
            for field in NAMES_OF_FILES
            for name in names_in(mapping.get(field))
            if not isinstance(name, str) or os.path.basename(name) != name or name == ".."
        ]
        elsewhere += [(field, mapping[field]) for field in MODELS_ELSEWHERE if mapping.get(field) is not None]
        elsewhere += [
            (field, mapping[field])
            for field, part in INITIALIZED_FROM.items()
            if is_place(mapping.get(field)) and (left_out or not mapping.get(part))
        ]
        for field, name in elsewhere:
            raise ModelFolderError(
                f"{file}: {field} names what is not in this folder ({name!r:.200}), and nothing outside it is read; "
                "save the whole model there."
            )


def mappings_in(settings: Any) -> Iterator[dict]:
    """Yields the mappings in a JSON value, recursively."""
    if isinstance(settings, dict):
        yield settings
        settings = list(settings.values())
    if isinstance(settings, list):
        for value in settings:
            yield from mappings_in(value)


def names_in(value: Any) -> list:
    """Returns the names in a field: one, a list or the values of a mapping, such as `weight_map`."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def is_place(value: Any) -> bool:
    """Returns whether a value is an existing path on this machine."""
    return isinstance(value, str) and value != "" and os.path.lexists(os.path.expanduser(value))

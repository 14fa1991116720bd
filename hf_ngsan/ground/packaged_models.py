"""Trained models that come with the package, loaded by name, such as "ngsan-flickr8k"."""

import inspect
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from .packaged_files import packaged_folder

CAPTIONER = "ngsan-flickr8k"
"""The default captioner of photographs."""
DUAL_ENCODER = "mhsan-flickr8k"
"""The default dual encoder of photographs and captions."""
CAPTIONERS_OF_SCENES = {
    "SAN": "san-scenes",
    "NG-SAN": "ngsan-scenes",
    "NG-SAN signed": "ngsan-signed-scenes",
}
"""Captioners of synthetic scenes: without geometry, with that of the paper, and with its sign."""
TAKES_NAMES = "takes_packaged_names"
"""Attribute of functions that are wrapped already, so that none is wrapped twice."""


def packaged_models() -> dict[str, Path]:
    """Returns the folders of the trained models by name."""
    folder = packaged_folder("checkpoints", "checkpoints")
    return {file.parent.name: file.parent for file in sorted(folder.glob("*/config.json"))}


def packaged_model(name: str) -> str:
    """Returns the folder of a packaged model, which `from_pretrained`, `pipeline` and the commands take.

    Raises:
        ValueError: no packaged model has this name; the message lists their names.

    Example:

    ```python
    >>> from pathlib import Path
    >>> from hf_ngsan import packaged_model
    >>> Path(packaged_model("ngsan-flickr8k")).name
    'ngsan-flickr8k'

    ```
    """
    found = packaged_models()
    if name not in found:
        raise ValueError(f"There is no packaged model {name!r}; there are {', '.join(found)}.")
    return str(found[name])


def folder_of_packaged(name: Any) -> Any:
    """Returns the folder of a packaged model by name; returns another name, or an existing path, unchanged."""
    if not isinstance(name, str | os.PathLike) or os.path.exists(name):
        return name
    folder = packaged_models().get(str(name))
    return name if folder is None else str(folder)


def takes_names(function: Callable, position: int = 0) -> Callable:
    """Wraps a function that takes a folder or a name on the Hub, so that it also takes names of packaged models.

    Args:
        function: its first argument, or its second after a class, is the name.
        position: position of that argument.
    """
    if hasattr(function, TAKES_NAMES):
        return function
    parameter = next(name for name in inspect.signature(function).parameters if name != "cls")

    @wraps(function)
    def with_folder(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            args = (*args[:position], folder_of_packaged(args[position]), *args[position + 1 :])
        elif parameter in kwargs:
            kwargs[parameter] = folder_of_packaged(kwargs[parameter])
        return function(*args, **kwargs)

    setattr(with_folder, TAKES_NAMES, True)
    return with_folder


def classes_take_names(module: ModuleType) -> None:
    """Makes `from_pretrained` of every class that a module defines take the names of packaged models."""
    for one in list(vars(module).values()):
        if isinstance(one, type) and one.__module__ == module.__name__:
            method = vars(one).get("from_pretrained")
            if isinstance(method, classmethod):
                loaded: Any = one
                loaded.from_pretrained = classmethod(takes_names(method.__func__, position=1))

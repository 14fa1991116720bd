"""Configurations of models with optional parts: a checkpoint carries only the code of the parts that it has."""

import importlib.util
import inspect
import shutil
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from .configuration_hub import ConfigurationError, HubConfig

if TYPE_CHECKING:  # transformers copies the files of all relative imports in the text, and thereby the parts
    from .parts import *  # noqa: F403

PARTS = "parts.py"
AUTO_CLASSES_OF_PARTS = ("AutoConfig", "AutoModel", "AutoBackbone")


class ConfigWithParts(HubConfig):
    """The configuration of a model with parts, such as a vision encoder, that have configurations of their own.

    The code of parts is imported when a model has them ([`from_part`]). Saving the code of a model adds that of its own
    parts, and a file `parts.py` that names it. In the package that file is empty: there is the code of all parts.

    Class attributes, set per architecture:
        parts (`tuple[str, ...]`): fields with the configurations of the parts.
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def modules_of_parts(self) -> set[str]:
        """Returns the names of the modules with configurations and models of the parts, recursively."""
        found: set[str] = set()
        for part in (getattr(self, field) for field in self.parts):
            classes = getattr(part, "remote_classes", {})  # those of transformers have none
            found |= {at.split(".")[0] for auto, at in classes.items() if auto in AUTO_CLASSES_OF_PARTS}
            if hasattr(part, "modules_of_parts"):
                found |= part.modules_of_parts()
        return found

    def save_pretrained(self, save_directory: str | PathLike, *args: Any, **kwargs: Any) -> None:
        super().save_pretrained(save_directory, *args, **kwargs)
        if self._auto_class is not None:
            save_parts(self.modules_of_parts(), Path(save_directory))


def save_parts(modules: Iterable[str], folder: Path) -> None:
    """Adds modules and their imports to the code of a model that transformers has copied to a folder.

    Code of another package, without a file `parts.py`, is left unchanged.
    """
    from transformers.dynamic_module_utils import get_relative_import_files

    home = Path(inspect.getfile(ConfigWithParts)).parent
    files = [file for module in sorted(modules) if (file := home / f"{module}.py").is_file()]
    if not files or not (folder / PARTS).is_file():
        return
    for file in {*files, *(Path(needed) for one in files for needed in get_relative_import_files(one))}:
        shutil.copyfile(file, folder / file.name)
    (folder / PARTS).write_text(code_of_parts([file.stem for file in files]), encoding="utf-8", newline="\n")


def code_of_parts(modules: Iterable[str]) -> str:
    """Returns the contents of `parts.py` of a checkpoint that needs some modules."""
    imports = "".join(f"    from .{module} import *\n" for module in modules)
    return (
        '"""The code of the parts that the model of this checkpoint has; see `configuration_parts`."""\n\n'
        f"from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n{imports}"
    )


def has_part(module: str) -> bool:
    """Returns whether this code has a module that a checkpoint carries only if its model has the part."""
    return importlib.util.find_spec(f".{module}", __package__) is not None


def from_part(location: str) -> Any:
    """Returns the object `module.name` of a module that a checkpoint carries only if its model has the part.

    Raises:
        ConfigurationError: this is the code of a checkpoint without the part.
    """
    module, name = location.split(".")
    try:
        return getattr(importlib.import_module(f".{module}", __package__), name)
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}.{module}":
            raise
        raise ConfigurationError(
            f"The code of this checkpoint has no {module}.py, as its own model needs none; import hf_ngsan, which has "
            "the code of all models."
        ) from None

"""Checkpoints that carry their own code, so that transformers loads them without this package."""

import json
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from ..exporting.onnx_folder import remove_old_graphs
from ..io.files import give_usual_modes, write_text_atomically
from ..io.packaged import complete_sources, write_licence
from ..models.configuration_hub import REFERENCES_TO_CODE, imports_of_parts
from ..models.modeling_base import registered_for_auto_classes
from .models import WEIGHTS, is_guest, task_of
from .self_test import write_self_test

MODELS = Path(__file__).parent.parent / "models"
PACKAGE_IMPORT = re.compile(r"^\s*(from|import) hf_ngsan\b", re.MULTILINE)
HANDLER = "handler.py"
"""File of a pushed captioner for the Inference Endpoints of the Hub."""
SETTINGS = "*config.json"
"""Files of a checkpoint that can refer to code."""


def save_for_hub(
    model: PreTrainedModel,
    processor: ProcessorMixin | BaseImageProcessor | PreTrainedTokenizerBase | None,
    directory: str | Path,
    *,
    max_shard_size: int | str = "50GB",
) -> Path:
    """Saves model, processor and the code of both, ready to be uploaded, with a record for `inspect --self-test`.

    A process without this package can then load the folder, or the Hub repository made from it, with
    `AutoModel.from_pretrained(directory, trust_remote_code=True)` or
    `pipeline("image-to-text", model=directory, trust_remote_code=True)`; with the package imported no trust is needed.
    The licences of the models that it is derived from go along; graphs of other weights that are in the directory are
    removed. References to other code, which the checkpoints that model and processor were loaded from may have, are
    left out.

    Args:
        model: a model of this package, of a model type that was registered with it, or of transformers itself.
        processor: its processor. An architecture without one takes what it has, an image processor or a tokenizer, or
            `None`.
        directory: where to write; made if absent.
        max_shard_size: of a file of weights, as in transformers.

    Returns:
        The directory.

    Raises:
        ValueError: a model or processor of another package, a part of a model, or no processor for a model that has
            one.
    """
    classes = getattr(model.config, "remote_classes", {})
    auto_classes: dict[type, str] = {}
    if not is_of_transformers(model):  # transformers has its code
        auto_classes[type(model.config)] = "AutoConfig"
        auto_classes[type(model)] = find_auto_class(model, ("Model", "Backbone"), classes)
        if "AutoProcessor" in classes:
            auto_classes[type(processor)] = find_auto_class(processor, ("Processor",), classes)
        elif "AutoTokenizer" in classes or not isinstance(processor, PreTrainedTokenizerBase | None):
            auto_classes[type(processor)] = find_auto_class(processor, ("ImageProcessor", "Tokenizer"), classes)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    parts = [getattr(processor, name) for name in getattr(processor, "get_attributes", list)()]
    for part in (processor, *parts):
        for settings in (getattr(part, "__dict__", {}), getattr(part, "init_kwargs", {})):
            settings.pop("auto_map", None)
    complete_sources(model)
    with registered_for_auto_classes(auto_classes):
        model.save_pretrained(directory, max_shard_size=max_shard_size)
        if processor is not None:
            processor.save_pretrained(directory)
    code = own_code(directory) | {f"{location.split('.')[0]}.py" for location in classes.values()}
    for file in directory.glob(SETTINGS):
        settings = json.loads(file.read_text(encoding="utf-8"))
        for mapping, key in list(foreign_references(settings, code)):
            del mapping[key]
            write_text_atomically(file, json.dumps(settings, indent=2) + "\n")
    write_self_test(model, processor, directory)
    write_licence(model, directory)
    remove_old_graphs(directory)
    give_usual_modes(directory, WEIGHTS)
    return directory


def is_of_transformers(model: PreTrainedModel) -> bool:
    """Returns whether a model is a captioner or dual encoder of transformers itself, which needs no code."""
    has_task = is_guest(model.config) and task_of(model.config) is not None
    return has_task and type(model).__module__.startswith("transformers.")


def needs_the_package(folder: Path) -> bool:
    """Returns whether the code in a folder imports this package; code of this package never does."""
    return any(
        PACKAGE_IMPORT.search(file.read_text("utf-8", errors="replace"))
        for file in folder.glob("*.py")
        if file.name != HANDLER
    )


def own_code(folder: Path) -> set[str]:
    """Returns the names of the code files in a folder that equal files of this or another imported package."""
    codes = {file.name: file.read_text("utf-8", errors="replace") for file in folder.glob("*.py")}
    imported = [Path(file) for module in [*sys.modules.values()] if (file := getattr(module, "__file__", None))]
    homes = {MODELS, *(file.parent for file in imported if file.name in codes)} - {folder, folder.resolve()}
    own = {
        name
        for name in codes
        if any((home / name).is_file() and (home / name).read_bytes() == (folder / name).read_bytes() for home in homes)
    }
    listed = codes.get("parts.py", "")  # as saving writes it, it has imports of other files alone
    return own | ({"parts.py"} if listed == imports_of_parts(re.findall(r"from \.(\w+) import", listed)) else set())


def foreign_references(settings: Any, code: Collection[str]) -> Iterator[tuple[dict, str]]:
    """Yields the mapping and key of each reference in settings to code that is not in some files."""
    if isinstance(settings, list):
        for value in settings:
            yield from foreign_references(value, code)
    elif isinstance(settings, dict):
        for name, value in settings.items():
            if name not in REFERENCES_TO_CODE:
                yield from foreign_references(value, code)
            elif not isinstance(value, dict):
                yield settings, name
            else:
                for kind, entry in value.items():
                    entry = entry.get("impl") if isinstance(entry, dict) else entry
                    named = [str(each) for each in (entry if isinstance(entry, list) else [entry]) if each is not None]
                    if not named or not {f"{each.rpartition('.')[0]}.py" for each in named} <= {*code}:
                        yield value, kind


def find_auto_class(saved: Any, kinds: tuple[str, ...], classes: dict[str, str]) -> str:
    """Returns the name of the Auto class, among some kinds, for the class of an object."""
    name = "None" if saved is None else type(saved).__name__
    for auto, location in classes.items():
        if auto.startswith(tuple(f"Auto{kind}" for kind in kinds)) and location.split(".")[-1] == name:
            return auto
    raise ValueError(f"save_for_hub() saves a model of this package and its processor; {name} is not one of them.")

"""Checkpoints that carry their own code, for readers who have only transformers."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin


def save_for_hub(model: "PreTrainedModel", processor: "ProcessorMixin", directory: str | Path) -> Path:
    """Save model, processor and the code of both, ready to be uploaded.

    A process without this package can then load the folder, or the Hub repository made from it, with
    `AutoModel.from_pretrained(directory, trust_remote_code=True)` or
    `pipeline("image-to-text", model=directory, trust_remote_code=True)`; with the package imported no trust is needed.

    Args:
        model (`PreTrainedModel`): a model of this package.
        processor (`ProcessorMixin`): its processor.
        directory (`str` or `Path`): where to write; made if absent.

    Returns:
        The directory.

    Raises:
        ValueError: a model or processor of another package, or a part of a model.
        NotADirectoryError: `directory` is a file.
    """
    classes = getattr(model.config, "remote_classes", {})
    auto_class = auto_class_of(model, "AutoModel", classes)
    auto_class_of(processor, "AutoProcessor", classes)
    directory = Path(directory)
    if directory.is_file():
        raise NotADirectoryError(f"{directory} is a file; save_for_hub() needs a directory.")
    registered: list[tuple[Any, str]] = [
        (type(model.config), "AutoConfig"),
        (type(model), auto_class),
        (type(processor), "AutoProcessor"),
    ]
    before = [cls._auto_class for cls, _ in registered]
    try:
        for cls, auto in registered:
            cls.register_for_auto_class(auto)
        model.save_pretrained(directory)
        processor.save_pretrained(directory)
    finally:
        for (cls, _), auto in zip(registered, before, strict=True):
            cls._auto_class = auto
    return directory


def auto_class_of(saved: object, prefix: str, classes: dict[str, str]) -> str:
    """The auto class, of those whose name begins with the prefix, that stands for the class of an object."""
    name = type(saved).__name__
    for auto, location in classes.items():
        if auto.startswith(prefix) and location.split(".")[-1] == name:
            return auto
    raise ValueError(f"save_for_hub() saves a model of this package and its processor; {name} is not one of them.")

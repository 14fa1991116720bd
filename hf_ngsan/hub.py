"""Checkpoints that carry their own code, for readers who have only transformers."""

from pathlib import Path
from typing import Any

from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from .models.configuration_hub import registered_for_auto_classes
from .self_test import write_self_test


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

    Args:
        model: a model of this package, or of a model type that was registered with it.
        processor: its processor. An architecture without one takes what it has, an image processor or a tokenizer, or
            `None`.
        directory: where to write; made if absent.
        max_shard_size: of a file of weights, as in transformers.

    Returns:
        The directory.

    Raises:
        ValueError: a model or processor of another package, a part of a model, or no processor for a model that has
            one.
        NotADirectoryError: `directory` is a file.
    """
    classes = getattr(model.config, "remote_classes", {})
    auto_classes: dict[type, str] = {
        type(model.config): "AutoConfig",
        type(model): auto_class_of(model, ("Model", "Backbone"), classes),
    }
    if "AutoProcessor" in classes:
        auto_classes[type(processor)] = auto_class_of(processor, ("Processor",), classes)
    elif "AutoTokenizer" in classes or not isinstance(processor, PreTrainedTokenizerBase | None):
        auto_classes[type(processor)] = auto_class_of(processor, ("ImageProcessor", "Tokenizer"), classes)
    directory = Path(directory)
    if directory.is_file():
        raise NotADirectoryError(f"{directory} is a file; save_for_hub() needs a directory.")
    with registered_for_auto_classes(auto_classes):
        model.save_pretrained(directory, max_shard_size=max_shard_size)
        if processor is not None:
            processor.save_pretrained(directory)
    write_self_test(model, processor, directory)
    return directory


def auto_class_of(saved: Any, kinds: tuple[str, ...], classes: dict[str, str]) -> str:
    """Returns the auto class, of those of some kinds, that stands for the class of an object."""
    name = "None" if saved is None else type(saved).__name__
    for auto, location in classes.items():
        if auto.startswith(tuple(f"Auto{kind}" for kind in kinds)) and location.split(".")[-1] == name:
            return auto
    raise ValueError(f"save_for_hub() saves a model of this package and its processor; {name} is not one of them.")

"""Checkpoints that carry their own code, for readers who have only transformers."""

from pathlib import Path


def save_for_hub(model, processor, directory: str | Path) -> Path:
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
        ValueError: a model of another package.
    """
    if not hasattr(model.config, "remote_classes"):
        raise ValueError(f"save_for_hub() saves models of this package; {type(model).__name__} is not one of them.")
    auto_class = next(
        auto
        for auto, name in reversed(model.config.remote_classes.items())
        if auto.startswith("AutoModel") and name.split(".")[-1] == type(model).__name__
    )
    registered = [(type(model.config), "AutoConfig"), (type(model), auto_class), (type(processor), "AutoProcessor")]
    before = [cls._auto_class for cls, _ in registered]
    try:
        for cls, auto in registered:
            cls.register_for_auto_class(auto)
        model.save_pretrained(directory)
        processor.save_pretrained(directory)
    finally:
        for (cls, _), auto in zip(registered, before, strict=True):
            cls._auto_class = auto
    return Path(directory)

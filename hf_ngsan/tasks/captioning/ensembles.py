"""Captioners named on a command line: one, or several that caption together."""

import os
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel, ProcessorMixin

from ...loading.models import ModelFolderError, find_model_folder, load_captioner
from ...models.ensemble import EnsembleForConditionalGeneration


def load_captioners(names: Sequence[str]) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Loads a captioner, or several as an ensemble, and the processor of the first.

    Args:
        names: what [`~hf_ngsan.loading.models.find_model_folder`] takes.

    Raises:
        FileNotFoundError, ModelFolderError: see [`~hf_ngsan.loading.models.load_model`]; captioners of other
            vocabularies, or that prepare images in other ways.
    """
    loaded = [load_captioner(name) for name in names]
    model, processor = loaded[0]
    if len(loaded) == 1:
        return model, processor
    first: Any = processor
    for name, (_, of_other) in zip(names[1:], loaded[1:], strict=True):
        other: Any = of_other
        if other.tokenizer.get_vocab() != first.tokenizer.get_vocab():
            raise ModelFolderError(f"{name} has another vocabulary than {names[0]}; an ensemble needs one vocabulary.")
        if settings(other.image_processor) != settings(first.image_processor):
            raise ModelFolderError(f"{name} prepares images in another way than {names[0]}; an ensemble needs one way.")
    try:
        return EnsembleForConditionalGeneration([model for model, _ in loaded]).eval(), processor
    except ValueError as error:
        raise ModelFolderError(f"{', '.join(names)} cannot caption together: {error}") from error


def settings(image_processor: Any) -> dict | None:
    return None if image_processor is None else image_processor.to_dict()


def is_model(place: str) -> bool:
    """Returns whether a path or a name is that of a model on this machine."""
    try:
        return os.path.isdir(find_model_folder(place))
    except (FileNotFoundError, ModelFolderError):
        return False

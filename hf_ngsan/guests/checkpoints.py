"""Checkpoints of transformers' own models: the task that they are for, and their processors."""

from collections.abc import Mapping, Sequence
from typing import Any

import transformers
from transformers import (
    AutoImageProcessor,
    AutoProcessor,
    AutoTokenizer,
    BaseImageProcessor,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    VisionTextDualEncoderProcessor,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from .captioners import GUESTS
from .dual_encoders import DUAL_ENCODERS


def task_of_guest(described: Mapping) -> str | None:
    """Returns the task of a model that is not of this package: "captioning", "retrieval", or `None` for neither.

    Captioners are the models that `AutoModelForImageTextToText` loads, and dual encoders those with
    `get_image_features` and `get_text_features`; of other packages, those that [`register_guest`] describes.

    Args:
        described: the contents of its config.json.
    """
    names = described.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str):
        return None
    if name in DUAL_ENCODERS:
        return "retrieval"
    if name in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values():
        return "captioning"
    kind, model_type = getattr(transformers, name, None), str(described.get("model_type"))
    if hasattr(kind, "get_image_features") and hasattr(kind, "get_text_features"):
        return "retrieval"
    if kind is None and model_type in DUAL_ENCODERS:
        return "retrieval"
    return "captioning" if kind is None and model_type in GUESTS else None


def whole_processor(folder: str, parts: Sequence[Any] = ()) -> ProcessorMixin:
    """Returns the processor of images and text of a checkpoint, or one of its tokenizer and its image processor.

    Args:
        folder: of the checkpoint, or its name on the Hub.
        parts: those that are loaded already: a processor, or a tokenizer, an image processor, both or none.

    Raises:
        OSError, ValueError: the checkpoint lacks a part that is not loaded yet.
    """
    parts = parts or [AutoProcessor.from_pretrained(folder, trust_remote_code=False)]  # nosec B615

    def first(kind: type) -> Any:
        return next((part for part in parts if isinstance(part, kind)), None)

    if (whole := first(ProcessorMixin)) is not None:
        return whole
    return VisionTextDualEncoderProcessor(
        first(BaseImageProcessor) or AutoImageProcessor.from_pretrained(folder, trust_remote_code=False),  # nosec B615
        first(PreTrainedTokenizerBase) or AutoTokenizer.from_pretrained(folder, trust_remote_code=False),  # nosec B615
    )

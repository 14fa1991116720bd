"""Processors of captioners whose checkpoints have an image processor and a tokenizer, and no processor of both."""

from collections.abc import Sequence
from typing import Any

from transformers import (
    AutoImageProcessor,
    AutoTokenizer,
    BaseImageProcessor,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    VisionTextDualEncoderProcessor,
)


def whole_processor(parts: Sequence[Any], folder: str) -> ProcessorMixin:
    """Returns a processor of images and text: one of those given, or one of parts, which a checkpoint completes.

    Args:
        parts: a processor, or a tokenizer, an image processor, both or none.
        folder: of the checkpoint, or its name on the Hub.

    Raises:
        OSError, ValueError: the checkpoint lacks what is missing.
    """

    def first(kind: type) -> Any:
        return next((part for part in parts if isinstance(part, kind)), None)

    if (whole := first(ProcessorMixin)) is not None:
        return whole
    return VisionTextDualEncoderProcessor(
        first(BaseImageProcessor) or AutoImageProcessor.from_pretrained(folder, trust_remote_code=False),  # nosec B615
        first(PreTrainedTokenizerBase) or AutoTokenizer.from_pretrained(folder, trust_remote_code=False),  # nosec B615
    )

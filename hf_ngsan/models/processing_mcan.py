"""Processor of MCAN: converts images or visual features and questions to model inputs."""

from collections.abc import Sequence
from typing import Any

from transformers.feature_extraction_utils import BatchFeature

from .processing_captioning import Arrays
from .processing_mhsan import MHSANProcessor


class MCANProcessor(MHSANProcessor):
    """Converts images to pixels, pads visual features and boxes, and tokenizes and truncates questions.

    As in the authors' release, questions are truncated to the tokenizer's `model_max_length` words.
    """

    text_kwargs = {"padding": True, "padding_side": "right", "return_token_type_ids": False, "truncation": True}

    def __call__(  # type: ignore[override]
        self,
        images: Any = None,
        text: str | Sequence[str] | None = None,
        visual_features: Arrays | None = None,
        visual_boxes: Arrays | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """Calls [`~processing_mhsan.MHSANProcessor.__call__`] with one question per image."""
        batch = super().__call__(images, text, visual_features, visual_boxes, **kwargs)
        visual = batch.get("visual_features", batch.get("pixel_values"))
        if visual is not None and "input_ids" in batch and len(visual) != len(batch["input_ids"]):
            numbers = f"{len(visual)} images and {len(batch['input_ids'])} questions"
            raise ValueError(f"There are {numbers}; pass one question per image.")
        return batch


__all__ = ["MCANProcessor"]

"""Processor of MCAN: converts images or visual features and questions to model inputs."""

from .processing_mhsan import MHSANProcessor


class MCANProcessor(MHSANProcessor):
    """Converts images to pixels, pads visual features and boxes, and tokenizes and truncates questions.

    As in the authors' release, questions are truncated to the tokenizer's `model_max_length` words.
    """

    text_kwargs = {"padding": True, "padding_side": "right", "return_token_type_ids": False, "truncation": True}


__all__ = ["MCANProcessor"]

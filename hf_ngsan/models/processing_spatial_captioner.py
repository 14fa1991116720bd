"""Processor of the spatial captioner."""

from .processing_ngsan import NGSANProcessor


class SpatialCaptionerProcessor(NGSANProcessor):
    """Grid features, captions for training and prefixes for generation to inputs of the spatial captioner.

    Args:
        tokenizer (`PreTrainedTokenizerFast`): word-level tokenizer with pad, start, end and unknown tokens.
    """


__all__ = ["SpatialCaptionerProcessor"]

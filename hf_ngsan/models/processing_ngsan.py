"""Processor of the NG-SAN family."""

from .processing_captioning import CaptioningProcessor


class NGSANProcessor(CaptioningProcessor):
    """The processor of [`NGSANForConditionalGeneration`]: a [`CaptioningProcessor`].

    Args:
        image_processor (`BaseImageProcessor`, *optional*): for models with a vision encoder.
        tokenizer (`PreTrainedTokenizerFast`): word-level tokenizer with pad, start, end and unknown tokens.
    """


__all__ = ["NGSANProcessor"]

"""Processor of RSTNet."""

from .processing_captioning import CaptioningProcessor


class RSTNetProcessor(CaptioningProcessor):
    """The processor of [`RSTNetForConditionalGeneration`] and [`RSTNetLanguageModel`]: a [`CaptioningProcessor`].

    Args:
        image_processor (`BaseImageProcessor`, *optional*): for models with a vision encoder.
        tokenizer (`PreTrainedTokenizerFast`): word-level tokenizer with pad, start, end and unknown tokens.
    """


__all__ = ["RSTNetProcessor"]

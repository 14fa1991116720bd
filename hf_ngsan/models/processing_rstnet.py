"""Processor of RSTNet."""

from .processing_captioning import CaptioningProcessor


class RSTNetProcessor(CaptioningProcessor):
    """The processor of [`RSTNetForConditionalGeneration`] and [`RSTNetLanguageModel`]: a [`CaptioningProcessor`]."""


__all__ = ["RSTNetProcessor"]

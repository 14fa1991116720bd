"""Processor of the NG-SAN family."""

from .processing_captioning import CaptioningProcessor


class NGSANProcessor(CaptioningProcessor):
    """The processor of [`NGSANForConditionalGeneration`]: a [`CaptioningProcessor`]."""


__all__ = ["NGSANProcessor"]

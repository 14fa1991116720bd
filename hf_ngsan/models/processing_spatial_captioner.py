"""Processor of the spatial captioner."""

from .processing_captioning import CaptioningProcessor


class SpatialCaptionerProcessor(CaptioningProcessor):
    """The processor of [`SpatialCaptionerForConditionalGeneration`]: a [`CaptioningProcessor`]."""


__all__ = ["SpatialCaptionerProcessor"]

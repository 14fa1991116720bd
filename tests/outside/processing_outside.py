"""The processor of the captioner."""

from hf_ngsan.models.processing_captioning import CaptioningProcessor


class OutsideProcessor(CaptioningProcessor):
    pass

from hf_ngsan.models.processing_captioning import CaptioningProcessor


class GlanceProcessor(CaptioningProcessor):
    """The processor of the glancing captioner."""

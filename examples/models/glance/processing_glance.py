from hf_ngsan.models.processing_captioning import CaptioningProcessor


class GlanceProcessor(CaptioningProcessor):
    """Processor of the captioner Glance."""

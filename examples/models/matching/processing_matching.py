from hf_ngsan.models.processing_captioning import CaptioningProcessor


class MatchingProcessor(CaptioningProcessor):
    """Pads regions and tokenizes captions, like the processor of captioners."""

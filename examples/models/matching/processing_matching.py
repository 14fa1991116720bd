from hf_ngsan.models.processing_captioning import CaptioningProcessor


class MatchingProcessor(CaptioningProcessor):
    """Pads regions and tokenizes captions, as that of the captioners does."""

"""Descriptions of captioners and dual encoders of transformers (BLIP, GIT, CLIP, ...), one for each family."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

"""Captioners and dual encoders of transformers itself (BLIP, GIT, CLIP, ...), described once each."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

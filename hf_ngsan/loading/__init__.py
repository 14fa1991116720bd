"""Models from folders and the Hub, with their preprocessing and the provenance of their features; saving with code."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

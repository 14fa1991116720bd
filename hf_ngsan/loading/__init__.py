"""Loads models from folders and the Hub, checks the provenance of their features, and saves models with code."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

"""Objectives, one loss per file. Names are imported when they are used."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

"""Exports captioners and dual encoders to ONNX, with a program that runs exported captioners."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

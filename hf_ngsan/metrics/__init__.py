"""Caption and retrieval metrics: equal to the official COCO evaluation, without Java.

Importing this package imports nothing heavy; each name is loaded when it is first used.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

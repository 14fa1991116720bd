"""Caption and retrieval metrics: equal to the official COCO evaluation, without Java.

Importing this package is quick; each name is imported on first use.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

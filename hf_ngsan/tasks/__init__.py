"""The tasks that models are trained for; each defines its rows, models, objectives and scores."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

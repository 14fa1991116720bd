"""From files to batches: the feature contract, readers, synthetic scenes, vocabulary, sampler and collator.

The names below are imported on first use, so that importing this package loads neither torch nor datasets.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

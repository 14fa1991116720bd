"""Upper bounds of options and of keys of a training config, and the default length of captions.

Bounds are far above useful values: a larger one is a mistake that would cost memory or time before an error shows it.
"""

MAX_INTEGER = 2**32 - 1
"""The largest seed that NumPy takes; other integers have smaller bounds or cost nothing."""
MAX_BATCH_SIZE = 2**14
MAX_CAPTIONS = 1_000
"""Captions of one image that are sampled or kept by a beam search."""
MAX_CAPTION_LENGTH = 4_096
"""Tokens of a caption or a sentence."""
DEFAULT_CAPTION_LENGTH = 20
"""New tokens that `generate()` of transformers 5 writes where neither model nor caller says how many."""
MAX_SIDE = 4_096
"""Pixels of a side of an image."""
MAX_GRID = 128
"""Rows or columns of a feature map."""
MAX_REGIONS = 10_000
MAX_WORKERS = 256

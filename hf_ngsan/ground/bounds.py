"""Upper bounds of options and of keys of a training config; a larger value is a mistake that costs memory or time."""

import os

MAX_INTEGER = 2**32 - 1
"""The largest seed; everything else has a smaller bound or costs nothing."""
MAX_BATCH_SIZE = 2**14
MAX_CAPTIONS = 1_000
"""Of an image: drawn, sampled, or kept by a beam search."""
MAX_CAPTION_LENGTH = 4_096
"""In tokens; of a sentence too."""
MAX_TEXT_LENGTH = 100_000
"""In characters, of a caption that is read; tokenizers need some 70 bytes for each, and abort where there are none."""
MAX_VOCABULARY = 2**20
"""Subwords of a tokenizer that is made."""
MAX_SIDE = 4_096
"""Of images, in pixels."""
MAX_GRID = 128
"""Rows or columns of a feature map."""
MAX_COPIES = 100
MAX_REGIONS = 10_000
MAX_THREADS = 1_024
MAX_WORKERS = 256


def max_processes() -> int:
    """Returns the largest number of processes that one command starts on this machine."""
    return max(16, 4 * (os.cpu_count() or 1))

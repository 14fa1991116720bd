"""Numbers above which an option or a key of a training config is a mistake, which would cost memory or time first."""

import os

LARGEST_INTEGER = 2**32 - 1
"""The largest seed; everything else has a smaller bound or costs nothing."""
LARGEST_BATCH = 2**14
MOST_CAPTIONS = 1_000
"""Of an image: drawn, sampled, or kept by a beam search."""
LONGEST_CAPTION = 4_096
"""In tokens; of a sentence too."""
LONGEST_TEXT = 100_000
"""In characters, of a caption that is read; tokenizers need some 70 bytes for each, and abort where there are none."""
LARGEST_VOCABULARY = 2**20
"""Subwords of a tokenizer that is made."""
LARGEST_SIDE = 4_096
"""Of images, in pixels."""
LARGEST_GRID = 128
"""Rows or columns of a feature map."""
MOST_COPIES = 100
MOST_REGIONS = 10_000
MOST_THREADS = 1_024
MOST_WORKERS = 256


def most_processes() -> int:
    """Returns how many processes of one command a machine starts at most."""
    return max(16, 4 * (os.cpu_count() or 1))

"""Memory that tensors on the CPU have freed: kept for the next tensors, or given back to the system."""

import os
import sys
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`, from malloc.h."""
MAX_THRESHOLD = 2**31 - 1
"""`mallopt` takes a C int."""
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
"""Environment variables of glibc that configure its allocator; a user's choice is kept."""


def keep_freed_memory() -> None:
    """Lets this process keep freed memory for its next tensors, up to 2 GiB.

    glibc gives large blocks back to the system at once and gets them anew, page by page, at the next operation, which
    can take longer than the operation itself. Does nothing with another C library, and where the user has set one of
    `SETTINGS`.
    """
    if sys.platform != "linux" or any(name in os.environ for name in SETTINGS):
        return
    import ctypes

    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, MAX_THRESHOLD)
        mallopt(M_MMAP_THRESHOLD, MAX_THRESHOLD)


def give_back_freed_memory() -> None:
    """Gives freed memory back to the system, until tensors need it anew. Does nothing without glibc."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

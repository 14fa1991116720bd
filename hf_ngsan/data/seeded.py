"""Random choices that depend on their arguments alone, in any process and order."""

import hashlib
from typing import Any

import numpy as np


def digest(*parts: Any) -> bytes:
    """Returns 8 bytes that depend on the `repr` of the arguments alone."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()


def generator_of(*parts: Any) -> np.random.Generator:
    """Returns a random generator that depends on its arguments alone."""
    return np.random.default_rng(int.from_bytes(digest(*parts)))

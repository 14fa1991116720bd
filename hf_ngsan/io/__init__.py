"""The lowest layer, which every package except `models` may import; imports of user modules."""

import os
import sys
from importlib import import_module
from types import ModuleType

from .messages import type_and_reason

MAX_INTEGER = 2**32 - 1  # the largest seed of NumPy
MAX_CAPTION_LENGTH = 4_096
"""Maximum tokens of a caption or sentence; larger values are mistakes that would cost memory."""
DEFAULT_CAPTION_LENGTH = 20
"""Default `max_new_tokens` of `generate()` in transformers 5."""


def import_user_module(name: str, asked_for_by: str) -> ModuleType:
    """Imports a user module named in an option or key; modules in the current folder have the lowest priority."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return import_module(name)
    except Exception as error:
        raise ValueError(f"{asked_for_by}: importing {name} failed ({type_and_reason(error)}).") from error

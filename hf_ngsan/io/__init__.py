"""The lowest layer, which every package but `models` may import; modules of users."""

import os
import sys
from importlib import import_module
from types import ModuleType

from .messages import type_and_reason

MAX_INTEGER = 2**32 - 1  # the largest seed that NumPy takes
MAX_CAPTION_LENGTH = 4_096
"""Tokens of a caption or a sentence, far above useful values: a larger number is a mistake that would cost memory."""
DEFAULT_CAPTION_LENGTH = 20
"""New tokens that `generate()` of transformers 5 writes where neither model nor caller says how many."""


def import_user_module(name: str, asked_for_by: str) -> ModuleType:
    """Imports a module of a user's that an option or key asks for; those in the current folder are found last."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return import_module(name)
    except Exception as error:
        raise ValueError(f"{asked_for_by}: importing {name} failed ({type_and_reason(error)}).") from error

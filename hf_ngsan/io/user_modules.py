"""Modules of the user's that register something."""

import os
import sys
from importlib import import_module
from types import ModuleType

from .messages import type_and_reason


class UserModuleError(ValueError):
    """A module that cannot be imported; the message names the option or key, the module and the reason."""


def import_user_module(name: str, asked_for_by: str) -> ModuleType:
    """Imports a module, such as `package.module`; one in the current folder is found too, after all other places.

    `asked_for_by` is the option or key that names the module, for messages.
    """
    if not all(map(str.isidentifier, name.split("."))):
        raise UserModuleError(f"{asked_for_by}: {name!r} names no module; write it as in Python, e.g. package.module.")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return import_module(name)
    except Exception as error:
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            raise UserModuleError(
                f"{asked_for_by}: there is no module {missing}; install it, start from the folder it lies in, or add "
                "that folder to PYTHONPATH."
            ) from None
        raise UserModuleError(
            f"{asked_for_by}: importing {name} failed ({type_and_reason(error)}); correct it."
        ) from error

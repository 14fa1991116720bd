"""Types of command-line arguments: `parser.add_argument("--top-k", type=at_most(100))`.

argparse calls them with the text, and reports their ArgumentTypeError with the name of the argument.
"""

import argparse
import math
import os
from collections.abc import Callable

MAX_DIGITS = 18
"""Digits of the longest number that fits into 64 bits for certain."""


def positive_int(text: str) -> int:
    return whole_number(text, least=1)


def whole_number(text: str, least: int = 0) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a whole number")
    if text != digits or (len(text) <= MAX_DIGITS and int(text) < least):
        raise argparse.ArgumentTypeError(f"{text[:50]} is too small; it must be at least {least}")
    if len(text) > MAX_DIGITS:
        raise argparse.ArgumentTypeError(f"a number of {len(text)} digits is too large")
    return int(text)


def at_most(largest: int, kind: Callable[[str], int] = positive_int) -> Callable[[str], int]:
    """Returns the type of a whole number with an upper bound."""

    def bounded(text: str) -> int:
        number = kind(text)
        if number > largest:
            raise argparse.ArgumentTypeError(f"{number} is too large; it can be {largest} at most")
        return number

    return bounded


def user_path(text: str) -> str:
    """Returns a path with `~` at its beginning replaced by the home folder, as a shell does."""
    return os.path.expanduser(text)


def between(least: float, most: float) -> Callable[[str], float]:
    """Returns the type of a number within two bounds, which are included."""

    def bounded(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a number from {least:g} to {most:g}")
        return value

    return bounded


fraction = between(0, 1)


def share(text: str) -> float:
    value = fraction(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value

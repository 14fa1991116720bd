"""Types of command-line arguments: functions that argparse calls with the text, and that refuse wrong values."""

import argparse
import math
import os
from collections.abc import Callable

MAX_DIGITS = 18
"""Every number of so many fits into 64 bits."""


def positive_int(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def whole_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a whole number")
    if len(text) > MAX_DIGITS:
        raise argparse.ArgumentTypeError(f"a number of {len(text)} digits is too large")
    return int(text)


def at_most(largest: int, kind: Callable[[str], int] = positive_int) -> Callable[[str], int]:
    """Returns the type of an argument that is no larger than a number."""

    def bounded(text: str) -> int:
        number = kind(text)
        if number > largest:
            raise argparse.ArgumentTypeError(f"{number} is too large; it can be {largest} at most")
        return number

    return bounded


def user_path(text: str) -> str:
    """Returns a path, in which `~` at the beginning is a home folder, as it is for a shell."""
    return os.path.expanduser(text)


def between(least: float, most: float) -> Callable[[str], float]:
    """Returns the type of an argument that is a number within bounds."""

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

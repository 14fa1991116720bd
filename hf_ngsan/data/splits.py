"""Which rows of a dataset are those of a split."""

from collections.abc import Iterable

OTHER_NAMES = {"validation": ("val", "valid", "dev"), "val": ("validation", "valid", "dev")}


def names_of_split(split: str) -> tuple[str, ...]:
    """Returns the names that a split may have where data lie, the one asked for first."""
    return split, *OTHER_NAMES.get(split, ())


def find_split(split: str, available: Iterable[str]) -> str | None:
    """Returns the name under which a split is available, or None."""
    available = set(available)
    return next((name for name in names_of_split(split) if name in available), None)

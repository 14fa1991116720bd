"""The image files of a folder in the order of their rows."""

from pathlib import Path

from ..data.image_files import SUFFIXES, image_files
from .errors import ExtractionError


def sorted_image_files(folder: Path) -> list[str]:
    """Returns the names of the image files in a folder, recursively and relative to it, sorted.

    Raises:
        ExtractionError: there are none, or a name is not UTF-8.
    """
    names = sorted(image_files(folder))
    if not names:
        raise ExtractionError(f"{folder} holds no images (files that end in {', '.join(SUFFIXES)}).")
    for name in names:
        check_text(name, f"{folder}: the file name {name!r}")
    return names


def check_text(text: str, what: str) -> None:
    """Raises an ExtractionError for text that cannot be stored: a file name may be any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ExtractionError(f"{what} is not UTF-8 text; rename or correct it.") from None

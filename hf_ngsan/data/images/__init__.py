"""Images with captions, the reader of `images:SOURCE` ([`~loading.load_images`]). Here: image files by their names."""

import os
from collections.abc import Iterator
from pathlib import Path

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # by Pillow's names, as in models
SUFFIXES = (".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".webm", ".mkv", ".avi", ".gif")


def is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def visible_files(folder: Path) -> Iterator[str]:
    """Yields the names of files in a folder, recursively and relative to it, without hidden ones."""

    def raise_error(error: OSError) -> None:
        raise error

    visited: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True, onerror=raise_error):
        real = os.path.realpath(place)
        # of two ways to a linked folder the first by name is taken
        folders[:] = [] if real in visited else sorted(name for name in folders if not name.startswith("."))
        if real not in visited:
            inside = "" if place == os.fspath(folder) else f"{Path(place).relative_to(folder).as_posix()}/"
            yield from (inside + name for name in files if not name.startswith("."))
        visited.add(real)


def sorted_files(folder: Path, suffixes: tuple[str, ...] = SUFFIXES) -> list[str]:
    """Returns the sorted names of such files in a folder, recursively and relative to it; a ValueError for none."""
    names = sorted(name for name in visible_files(folder) if name.lower().endswith(suffixes))
    if not names:
        raise ValueError(f"{folder} holds no files that end in {', '.join(suffixes)}.")
    for name in names:
        if name != name.encode(errors="replace").decode():
            raise ValueError(f"{folder}: the file name {name!r} is not UTF-8 text; rename it.")
    return names

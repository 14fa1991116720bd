"""Images with captions: the reader of `images:SOURCE` ([`~loading.load_image_dataset`]). Here: files of a dataset."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ..errors import DataError

ZIP = "zip://"
HUB = "hf://datasets/"
IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")  # as in models; JPEG needs the fewest imports
SUFFIXES = (".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".webm", ".mkv", ".avi", ".gif")


class OwnFiles:
    """The files that belong to a dataset: a folder, the folder of a file, or a dataset on the Hub and its caches.

    Readers open only files that [`find`](OwnFiles.find) returns. `links` allows links to other places.
    """

    def __init__(self, source: str | os.PathLike, links: bool = False) -> None:
        source, self.hub, self.links = os.fspath(source), "", links
        if os.path.exists(source):
            folder = os.path.abspath(source if os.path.isdir(source) else os.path.dirname(source))
            # files in the Hub's cache are links to the folder "blobs"
            real = os.path.realpath(folder)
            snapshots = [place for place in Path(real).parents if place.name == "snapshots"]
            self.folders, self.real_folders = [folder], [real, *(str(place.parent / "blobs") for place in snapshots)]
        else:
            import datasets
            from huggingface_hub import constants

            self.hub = f"{HUB}{source}"
            self.folders = [constants.HF_HUB_CACHE, str(datasets.config.HF_DATASETS_CACHE)]
            self.real_folders = [os.path.realpath(folder) for folder in self.folders]
        self.real_folder_of = cache(os.path.realpath)

    def find(self, path: str, where: str) -> str:
        """Returns the location of a file that a dataset names, a path or `zip://MEMBER::ARCHIVE`; raises a DataError
        for a URL or a file outside of the dataset."""
        if path.startswith(ZIP):
            member, _, archive = path.removeprefix(ZIP).partition("::")
            if archive and "::" not in archive and "://" not in member:
                return f"{ZIP}{member}::{self.find(archive, where)}"
        is_of_hub = self.hub and path.startswith((f"{self.hub}@", f"{self.hub}/"))
        if is_of_hub and not re.search(r"::|(^|/)\.\.(/|$)", path):
            return path
        if "://" in path:
            raise DataError(f"{where}: {path} is a URL; download the files of the dataset first.")
        file = os.path.normpath(os.path.join(self.folders[0], path))
        folder, name = os.path.split(file)
        real = os.path.realpath(file) if os.path.islink(file) else os.path.join(self.real_folder_of(folder), name)
        is_inside = self.links or is_within(real, self.real_folders)
        if not (is_inside and is_within(file, self.folders + self.real_folders)):
            problem = f"{where}: {path} is outside of the dataset's folder, {self.folders[0]}, or is a link out of it"
            raise DataError(f"{problem}; copy the file, or allow links in your folder: images:FOLDER,links=true.")
        return file


def is_within(file: str, folders: list[str]) -> bool:
    return file.startswith(tuple(os.path.join(folder, "") for folder in folders))


def has_image_suffix(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def visible_files(folder: Path) -> Iterator[str]:
    """Yields the names of files in a folder, recursively and relative to it, without hidden files."""

    def raise_error(error: OSError) -> None:
        raise error

    visited: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True, onerror=raise_error):
        real = os.path.realpath(place)
        # if two paths lead to a linked folder, the first by name is used
        folders[:] = [] if real in visited else sorted(name for name in folders if not name.startswith("."))
        if real not in visited:
            inside = "" if place == os.fspath(folder) else f"{Path(place).relative_to(folder).as_posix()}/"
            yield from (inside + name for name in files if not name.startswith("."))
        visited.add(real)


def sorted_files(folder: Path, suffixes: tuple[str, ...] = SUFFIXES, links: bool = False) -> list[str]:
    """Returns the sorted names of such files in a folder, recursively and relative to it; a ValueError for none."""
    own_files = OwnFiles(folder, links)
    names = sorted(name for name in visible_files(folder) if name.lower().endswith(suffixes))
    if not names:
        raise ValueError(f"{folder} has no files that end in {', '.join(suffixes)}.")
    for name in names:
        if name != name.encode(errors="replace").decode():
            raise ValueError(f"{folder}: the file name {name!r} is not UTF-8 text; rename it.")
        own_files.find(name, str(folder))
    return names

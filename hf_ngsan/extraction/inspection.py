"""Inspection of a folder of images; it reads every image."""

from collections.abc import Iterator
from pathlib import Path

from ..data.images.sources import split_names
from ..data.inspection import Findings
from .image_list import ImageList, image_files, list_images

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Files with captions of images that the datasets library reads."""


def holds_images(folder: Path) -> bool:
    """Returns whether a folder has image files, searched recursively."""
    return folder.is_dir() and next(image_files(folder), None) is not None


def inspect_images(folder: Path) -> Findings:
    """Reads every image of a folder, and captions of `metadata.csv` or `metadata.jsonl`, and counts them.

    Raises:
        DataError: the metadata cannot be read.
        ExtractionError: a file name is no text.
    """
    findings = Findings("folder of images")
    listed_files: set[str] = set()
    for split, images in lists_of(folder):
        findings.notes += images.notes
        listed_files |= {listed.file_name for listed in images.images}
        for number, listed in enumerate(images.images):
            try:
                image, _ = images.read(number)
                row = {"split": split, "image_id": listed.image_id, "width": image.width, "height": image.height}
                findings.add_row({**row, "captions": list(listed.captions)} if listed.captions is not None else row)
            except (ValueError, OSError) as error:
                findings.add_problem(error)
    others = [name for name in image_files(folder) if name not in listed_files]
    if others:
        findings.notes.append(
            f"Image files that the metadata do not name, or give no caption, are left out: {len(others)}, "
            f"{min(others)} among them."
        )
    return findings


def lists_of(folder: Path) -> Iterator[tuple[str | None, ImageList]]:
    """Yields the name of each split, None for a folder without splits, and its images."""
    if not any(next(folder.rglob(name), None) for name in METADATA):
        yield None, list_images(folder)
        return
    for split in split_names(str(folder)):
        yield split, list_images(f"images:{folder}", split=split)

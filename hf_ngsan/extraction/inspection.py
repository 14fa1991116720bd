"""Inspection of a folder of images; it reads every image."""

from pathlib import Path

from ..data.image_files import is_image, visible_files
from ..data.images.folder import how_to_caption, is_metadata
from ..data.images.sources import split_names
from ..data.inspection import Findings
from ..data.splits import MIN_ROWS, VALIDATION, find_split
from .image_list import list_images


def inspect_images(folder: Path) -> Findings:
    """Reads every image of a folder, and its captions, counts them, and says what the folder can be used for.

    Raises:
        DataError: metadata or captions cannot be read, or splits are unclear.
        ExtractionError: a file name is no text.
    """
    findings = Findings("folder of images")
    used: set[str] = set()
    captioned: dict[str, int] = {}
    for split in split_names(str(folder)):
        images = list_images(f"images:{folder}", split=split)
        used |= {listed.file_name for listed in images.images}
        captioned[split] = len(images) if images.has_captions else 0
        for number, listed in enumerate(images.images):
            try:
                image, _ = images.read(number)
                row = {"split": split, "image_id": listed.image_id, "width": image.width, "height": image.height}
                findings.add_row({**row, "captions": list(listed.captions)} if listed.captions is not None else row)
            except (ValueError, OSError) as error:
                findings.add_problem(error)
    findings.notes += notes_on_files(folder, used)
    findings.uses = uses_of(folder, captioned, findings)
    return findings


def notes_on_files(folder: Path, used: set[str]) -> list[str]:
    """Returns sentences about the files of a folder that are left out."""
    names = sorted(visible_files(folder))
    others = [name for name in names if is_image(name) and name not in used]
    stems = {name.rpartition(".")[0] for name in names if is_image(name)}
    known = used | {name for name in names if is_image(name) or is_metadata(name) or name.rpartition(".")[0] in stems}
    unknown = [name for name in names if name not in known]
    notes = []
    if others:
        notes.append(
            f"Image files that the metadata do not name, or that have no caption, are left out: {len(others)}, "
            f"{others[0]} among them."
        )
    if unknown:
        notes.append(
            f"Files that are not images by their suffix are left out: {len(unknown)}, {unknown[0]} among them."
        )
    return notes


def uses_of(folder: Path, captioned: dict[str, int], findings: Findings) -> dict[str, str]:
    """Returns the commands that use a folder of images, each with what it lacks; "" if it is usable.

    Args:
        folder: the folder.
        captioned: number of images with captions by split.
        findings: what was found in it.
    """
    captions = ""
    if not any(captioned.values()):
        fix, example = how_to_caption(folder)
        captions = "\n".join([f"there are no captions; {fix}, such as", *(f"  {line}" for line in example)])
    elif findings.num_problems:
        captions = "the problem below stops it"
    train = captions
    if not captions:
        number = captioned.get("train", 0)
        if not number:
            train = f"there are no captions in a split 'train', only in {', '.join(filter(captioned.get, captioned))}"
        elif number < MIN_ROWS and find_split(VALIDATION, captioned) is None:
            train = f"{number} images with captions are too few to set some aside; {MIN_ROWS} are needed"
    images = "" if findings.num_images else "no image can be read"
    return {"caption": images, "index": images, "train": train, "evaluate": captions}

"""Which images there are: those of a folder, or those that a COCO file lists."""

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..coco_files import CocoFileError, captions_in_order, images_by_id, read_object, records_of, tidy_caption
from .errors import ExtractionError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class ListedImage:
    """An image's id, the name of its file within the folder, and its captions, if captions are known."""

    image_id: int
    file_name: str
    captions: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ImageList:
    """Images in the order in which they become rows.

    Attributes:
        source: the folder or JSON file they come from, for messages.
        folder: where their files are.
        images: at least one.
        has_captions: whether every image has captions.
        notes: sentences about what was left out.
    """

    source: str
    folder: Path
    images: tuple[ListedImage, ...]
    has_captions: bool = False
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.images)

    def path_of(self, index: int) -> Path:
        return self.folder / self.images[index].file_name

    def checksum(self, split: str | None) -> str:
        """A key of the images and their order, but not of where their folder is."""
        content = [split, [[image.image_id, image.file_name, image.captions] for image in self.images]]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def list_images(source: str | os.PathLike, image_folder: str | os.PathLike | None = None) -> ImageList:
    """List the images of a folder or of a COCO file.

    A folder's images are those files, also of folders within, whose names end as images' do, by name. The id of an
    image is the number at the end of its file name, as in COCO, or, unless each has one of its own, its place in the
    list.

    Args:
        source: a folder, or a JSON file `{"images": [{"id", "file_name"}], "annotations": [...]}`. Annotations with
            captions become captions; images without any are then left out, which a note counts.
        image_folder: what the file names of a JSON file are relative to; the file's folder or its `images` by default.

    Raises:
        ExtractionError: there are no images, or the file is not such a file.
    """
    source = Path(source)
    if source.is_dir():
        if image_folder is not None:
            raise ExtractionError(f"--image-folder goes with a JSON file, but {source} is a folder; leave it out.")
        return images_of_folder(source)
    if not source.exists():
        raise ExtractionError(f"{source} does not exist; give a folder of images or a COCO JSON file.")
    if source.suffix.lower() != ".json":
        raise ExtractionError(f"{source} is neither a folder nor a .json file; give a folder or a COCO JSON file.")
    try:
        return images_of_coco_file(source, None if image_folder is None else Path(image_folder))
    except CocoFileError as error:
        raise ExtractionError(str(error)) from None


def images_of_folder(folder: Path) -> ImageList:
    names = sorted(image_files(folder))
    if not names:
        raise ExtractionError(f"{folder} holds no images (files that end in {', '.join(SUFFIXES)}).")
    for name in names:
        check_text(name, f"{folder}: the file name {name!r}")
    numbers = [number_at_the_end(name) for name in names]
    notes = ()
    if None in numbers or len(set(numbers)) < len(numbers):
        numbers = range(len(names))
        notes = ("Not every file name ends in a number of its own, so image ids are places in the list of file names.",)
    images = tuple(ListedImage(number, name) for number, name in zip(numbers, names, strict=True))
    return ImageList(str(folder), folder, images, notes=notes)


def image_files(folder: Path) -> Iterator[str]:
    """Names, relative to the folder, of the image files in it and in the folders within; hidden ones are left out."""
    visited = set()
    for place, folders, files in os.walk(folder, followlinks=True, onerror=raise_it):
        real = os.path.realpath(place)
        # of two ways to a linked folder the first by name is taken
        folders[:] = [] if real in visited else sorted(name for name in folders if not name.startswith("."))
        if real not in visited:
            for name in files:
                if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                    yield (Path(place) / name).relative_to(folder).as_posix()
        visited.add(real)


def raise_it(error: OSError):
    raise error


def number_at_the_end(name: str) -> int | None:
    """391895 of `val2014/COCO_val2014_000000391895.jpg`."""
    digits = re.search(r"[0-9]+$", Path(name).stem)
    return int(digits[0]) if digits and len(digits[0]) < 19 else None


def images_of_coco_file(file: Path, image_folder: Path | None) -> ImageList:
    content = read_object(file)
    images = {}
    for image_id, record in images_by_id(content, file).items():
        images[image_id] = name = record.string("file_name")
        if not name or "\0" in name:
            raise ExtractionError(f"{record.where}: file_name is {name!r}; it must be the name of an image file.")
        check_text(name, f"{record.where}: file_name {name!r}")
    if not images:
        raise ExtractionError(f"{file} lists no images.")
    folder = image_folder_of(file, image_folder, list(images.values()))
    captions = captions_of_coco_file(file, content)
    if captions is None:
        return ImageList(str(file), folder, tuple(ListedImage(*item) for item in images.items()))
    listed = tuple(ListedImage(key, name, captions[key]) for key, name in images.items() if key in captions)
    if not listed:
        raise ExtractionError(f"{file} has captions, but none of an image that it lists.")
    left_out = len(images) - len(listed)
    notes = (f"{file}: {left_out} of {len(images)} images have no caption and were left out.",) if left_out else ()
    return ImageList(str(file), folder, listed, has_captions=True, notes=notes)


def check_text(text: str, what: str):
    """Raise an ExtractionError for text that cannot be stored: file names need not be characters at all."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ExtractionError(f"{what} is not UTF-8 text; rename or correct it.") from None


def image_folder_of(file: Path, given: Path | None, names: list[str]) -> Path:
    """The folder that holds the files: the one given, else whichever candidate has the first file that either has."""
    if given is not None:
        if not given.is_dir():
            raise ExtractionError(f"--image-folder {given} is not a folder.")
        return given
    candidates = [folder for folder in (file.parent, file.parent / "images") if folder.is_dir()]
    for name in names:
        for folder in candidates:
            if (folder / name).exists():
                return folder
    raise ExtractionError(
        f"None of the {len(names)} images of {file} is in {' or '.join(map(str, candidates))}; say with --image-folder "
        "where they are."
    )


def captions_of_coco_file(file: Path, content: dict) -> dict[int, tuple[str, ...]] | None:
    """Captions by image id, in the order of their annotations' ids; None where the annotations are no captions."""
    annotations = content.get("annotations")
    if not isinstance(annotations, list) or not any("caption" in one for one in annotations if isinstance(one, dict)):
        return None
    captions = defaultdict(list)
    for caption in captions_in_order(records_of(content, "annotations", file)):
        text = tidy_caption(caption)
        if text:
            captions[caption.image_id].append(text)
    return {image_id: tuple(texts) for image_id, texts in captions.items()}

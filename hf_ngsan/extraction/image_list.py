"""Lists of images: of a folder, of a COCO file, or of a dataset.

```python
images = list_images("coco/captions_val2017.json", "coco/val2017")
image, stamp = images.read(0)
```
"""

import hashlib
import json
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..data import load_data
from ..data.annotations import has_any
from ..data.images.files import decode_image
from ..data.readers import READERS
from ..io.coco_files import CocoFileError, images_by_id, in_order, number_at_the_end, read_object, records_of
from ..io.files import FileStamp, is_unchanged, stamp_of_content
from ..models.image_processing_captioning import load_image
from .errors import ExtractionError
from .image_files import check_text, sorted_image_files

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image


@dataclass(frozen=True, slots=True)
class ListedImage:
    """The id of an image, the name of its file within the folder, and its captions, if known."""

    image_id: int
    file_name: str
    captions: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ImageList:
    """Images in the order in which they become rows.

    Attributes:
        source: name of the folder, JSON file or dataset in messages.
        folder: folder of the file names.
        images: at least one image.
        has_captions: whether every image has captions.
        notes: sentences about images that were left out.
    """

    source: str
    folder: Path
    images: tuple[ListedImage, ...]
    has_captions: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    def path_of(self, index: int) -> Path:
        return self.folder / self.images[index].file_name

    def read(self, index: int, least_side: int | None = None) -> tuple["Image", FileStamp | None]:
        """Returns an image, upright and in RGB, and the stamp of its file, if it has one.

        Args:
            index: position in the list.
            least_side: see [`~hf_ngsan.models.image_processing_captioning.load_image`].

        Raises:
            ValueError, OSError: the image cannot be read.
        """
        path = self.path_of(index)
        if not path.is_file():  # reading a device or a pipe might never end
            raise FileNotFoundError(f"{path} is no file.")
        modified, content = path.stat().st_mtime_ns, path.read_bytes()
        return load_image({"bytes": content, "path": path}, least_side=least_side), stamp_of_content(content, modified)

    def is_unchanged(self, index: int, stamp: FileStamp) -> bool:
        """Returns whether an image still has this stamp, or no longer exists."""
        return not self.is_there(index) or is_unchanged(self.path_of(index), stamp)

    def is_there(self, index: int) -> bool:
        """Returns whether an image has a file, readable or not."""
        return self.path_of(index).is_file()

    def checksum(self, split: str | None) -> str:
        """Returns a key of the images and their order, which is independent of the folder's place."""
        # the checksum of the JSON list [split, [[id, name, captions], ...]], which would take much memory
        digest = hashlib.sha256(f"[{json.dumps(split)}, [".encode())
        for number, image in enumerate(self.images):
            content = json.dumps([image.image_id, image.file_name, image.captions])
            digest.update(f"{', ' if number else ''}{content}".encode())
        digest.update(b"]]")
        return digest.hexdigest()


@dataclass(frozen=True)
class DatasetImages(ImageList):
    """The images of a dataset's split, in the order of its rows.

    Attributes:
        rows: rows with a column `image`.
    """

    rows: "Dataset" = field(kw_only=True)

    def read(self, index: int, least_side: int | None = None) -> tuple["Image", FileStamp | None]:
        content, path = self.stored(index)
        modified = self.mtime_ns
        if content is None and path.is_file():
            modified, content = path.stat().st_mtime_ns, path.read_bytes()
        if content is None:
            return load_image(self.rows[index]["image"]), None
        stored, mode = {"bytes": content, "path": path}, self.rows.features["image"].mode
        try:
            source = stored if mode is None else decode_image(stored, self.rows.features["image"])
            image = load_image(source, least_side=least_side)
        except Exception:
            image = load_image(self.rows[index]["image"])  # whose errors name the row
        return image, stamp_of_content(content, modified)

    def is_unchanged(self, index: int, stamp: FileStamp) -> bool:
        content, path = self.stored(index)
        if content is None:
            return not path.is_file() or is_unchanged(path, stamp)
        if len(content) != stamp.num_bytes:
            return False
        return self.mtime_ns == stamp.mtime_ns or hashlib.sha256(content).hexdigest() == stamp.sha256

    def is_there(self, index: int) -> bool:
        content, path = self.stored(index)
        return content is not None or path.is_file()

    def stored(self, index: int) -> tuple[bytes | None, Path]:
        """Returns the stored bytes of an image, None for a file, and its path."""
        image = self.undecoded[index]["image"]
        return image["bytes"], Path(image["path"] or "")

    @cached_property
    def undecoded(self) -> "Dataset":
        from datasets import Image

        return self.rows.select_columns("image").with_format(None).cast_column("image", Image(decode=False))

    @cached_property
    def mtime_ns(self) -> int:
        """Time of the last change of the dataset's files; the current time for a dataset in memory."""
        files = [Path(file["filename"]) for file in self.rows.cache_files]
        return max((file.stat().st_mtime_ns for file in files), default=time.time_ns())


def list_images(
    source: str | os.PathLike, image_folder: str | os.PathLike | None = None, split: str | None = None
) -> ImageList:
    """Lists the images of a folder, of a COCO file or of a dataset.

    The images of a folder are its files with the suffix of an image, recursively and sorted by name. The id of an image
    is the number at the end of its file name, as in COCO; if these numbers are not unique, it is the place in the list.

    Args:
        source: a folder, or a JSON file `{"images": [{"id", "file_name"}], "annotations": [...]}`. Annotations with
            captions are used; images without any are then left out, and a note counts them.
            Or a dataset with images, such as `images:SOURCE` ([`~hf_ngsan.data.load_data`]).
        image_folder: the folder that file names in a JSON file are relative to; by default that of the file, or
            `images` beside it.
        split: split of a dataset, which is required.

    Raises:
        ExtractionError: there are no images, the file cannot be used, or the split has no name.
    """
    check_split(split)
    if is_dataset_spec(source):
        if image_folder is not None:
            raise ExtractionError(f"--image-folder goes with a JSON file, but {source} is a dataset; leave it out.")
        return images_of_dataset(str(source), split)
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


def check_split(split: str | None) -> None:
    """Raises an ExtractionError for the name of a split that is empty or cannot be stored."""
    if split is None:
        return
    if not split.strip():
        raise ExtractionError(f"The split is {split!r}; name it, such as train, or leave it out.")
    check_text(split, f"The split {split!r}")


def is_dataset_spec(source: str | os.PathLike) -> bool:
    """Returns whether a source is the spec of a dataset and not a file or folder."""
    name, colon, _ = str(source).partition(":")
    return name in READERS and (bool(colon) or not os.path.lexists(source))


def images_of_dataset(spec: str, split: str | None) -> DatasetImages:
    if split is None:
        raise ExtractionError(f"{spec} is a dataset, of which one split is extracted at a time; name it with --split.")
    rows = load_data(spec, split)
    if "image" not in rows.column_names:
        raise ExtractionError(f"{spec}, split {split}, has no images; give a dataset that has, such as images:SOURCE.")
    known = rows.select_columns([name for name in ("image_id", "file_name", "captions") if name in rows.column_names])
    images = tuple(
        ListedImage(
            int(row["image_id"]),
            row.get("file_name") or str(row["image_id"]),
            tuple(row["captions"]) if "captions" in row else None,
        )
        for row in known
    )
    rows = rows.select_columns([name for name in rows.column_names if name in ("image_id", "file_name", "image")])
    return DatasetImages(spec, Path(), images, has_captions="captions" in known.column_names, rows=rows)


def images_of_folder(folder: Path) -> ImageList:
    names = sorted_image_files(folder)
    numbers = [number for name in names if (number := number_at_the_end(name)) is not None]
    notes: tuple[str, ...] = ()
    if len(set(numbers)) < len(names):
        numbers = list(range(len(names)))
        notes = ("Not every file name ends in a number of its own, so image ids are places in the list of file names.",)
    images = tuple(ListedImage(number, name) for number, name in zip(numbers, names, strict=True))
    return ImageList(str(folder), folder, images, notes=notes)


def images_of_coco_file(file: Path, image_folder: Path | None) -> ImageList:
    content = read_object(file)
    images = {}
    for image_id, record in images_by_id(content, file).items():
        images[image_id] = name = record.encodable("file_name")
        if not name or "\0" in name:
            raise ExtractionError(f"{record.where}: file_name is {name!r}; it must be the name of an image file.")
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


def image_folder_of(file: Path, given: Path | None, names: list[str]) -> Path:
    """Returns the given folder, or the first candidate with one of the files."""
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
        f"None of the {len(names)} images of {file} is in {' or '.join(map(str, candidates))}; name their "
        "folder with --image-folder."
    )


def captions_of_coco_file(file: Path, content: dict) -> dict[int, tuple[str, ...]] | None:
    """Returns captions by image id in the order of their ids, or None if the annotations are no captions."""
    if not has_any(content.get("annotations"), "caption"):
        return None
    captions = defaultdict(list)
    for annotation in in_order(records_of(content, "annotations", file)):
        image_id, text = annotation.integer("image_id"), annotation.text("caption")
        if text:
            captions[image_id].append(text)
    return {image_id: tuple(texts) for image_id, texts in captions.items()}

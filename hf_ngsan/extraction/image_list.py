"""Lists the images of a folder, a COCO file or a dataset, and reads them in several processes."""

import hashlib
import io
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..data.annotations import coco_records
from ..data.coco_files import number_at_the_end, read_json
from ..data.errors import DataError
from ..data.images import OwnFiles, sorted_files
from ..data.readers import READERS, load_data
from ..io.files import FileStamp, is_unchanged, stamp_of_content
from ..io.messages import ProgressDisplay, sentence, type_and_reason
from ..io.processes import OneProcess
from ..models.images import ImageError, least_side_of, load_image
from ..models.videos import frames_for

if TYPE_CHECKING:
    import datasets
    from PIL.Image import Image

    from ..data.boxes import ImageBoxes


MAX_NAMES = 20  # maximum names of unreadable images in an error
SKIP_ERRORS = "Use --skip-errors to leave out images that cannot be read."  # end of the error for an image


class ExtractionError(ValueError):
    """Images, a backbone or a folder that cannot be used; the message names it and a remedy."""


class ListedImage(NamedTuple):
    """The id of an image, its file name in the folder, and its captions, if known."""

    image_id: int
    file_name: str
    captions: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ImageList:
    """Images in the order in which they become rows."""

    source: str  # name of the folder, JSON file or dataset in messages
    images: tuple[ListedImage, ...]
    folder: Path = Path()
    rows: "datasets.Dataset | None" = None  # with a column `image`, `video` or `frames`, if the source is a dataset
    has_captions: bool = False  # whether every image has captions
    notes: tuple[str, ...] = ()  # sentences about images that were left out
    boxes: tuple["ImageBoxes", ...] = ()  # boxes of each image, or empty

    def __len__(self) -> int:
        return len(self.images)

    @property
    def are_clips(self) -> bool:
        """Whether these are video clips instead of images."""
        return self.rows is not None and "image" not in self.rows.column_names

    def with_boxes(self, path: str | os.PathLike, settings: Any, skip_errors: bool = False) -> "ImageList":
        """Returns the images with boxes from a file; see [`~hf_ngsan.data.boxes.boxes_of_images`]."""
        from ..data.boxes import boxes_of_images

        boxes, notes = boxes_of_images(path, self.images, settings, skip_errors)
        return replace(self, boxes=tuple(boxes), notes=(*self.notes, *notes))

    def read_clip(self, index: int, image_processor: Any) -> tuple[list["Image"], FileStamp | None]:
        """Returns the frames of a clip for the image processor, and the stamp of its file, if it has one."""
        assert self.rows is not None
        row = self.rows[index]
        if row.get("frames") is not None:
            return [load_image(frame) for frame in row["frames"]], None
        content, path, stamp = self.content(index)
        return frames_for(image_processor, content or path, self.images[index].file_name), stamp

    def read(self, index: int, least_side: int | None = None) -> tuple["Image", FileStamp | None]:
        """Returns an upright RGB image, reduced to at least `least_side`, and the stamp of its file or bytes."""
        content, path, stamp = self.content(index)
        if self.rows is None:
            return load_image({"bytes": content, "path": path}, least_side=least_side), stamp
        if content is not None and self.rows.features["image"].mode is None:
            with suppress(ImageError):
                return load_image(content, least_side=least_side), stamp
        return load_image(self.rows[index]["image"]), stamp  # may be in an archive; errors of the dataset name the row

    def content(self, index: int) -> tuple[bytes | None, Path, FileStamp | None]:
        """Returns the bytes of an image, its path, and the stamp of the bytes."""
        content, path = self.stored(index)
        modified = self.mtime_ns
        if content is None and path.is_file():
            modified, content = path.stat().st_mtime_ns, path.read_bytes()
        return content, path, None if content is None else stamp_of_content(content, modified)

    def is_unchanged(self, index: int, stamp: FileStamp) -> bool:
        """Returns whether an image still has this stamp, or no longer exists."""
        content, path = self.stored(index)
        if content is None:
            return not path.is_file() or is_unchanged(path, stamp)
        return len(content) == stamp.num_bytes and (
            self.mtime_ns == stamp.mtime_ns or hashlib.sha256(content).hexdigest() == stamp.sha256
        )

    def is_there(self, index: int) -> bool:
        """Returns whether an image has a file or stored bytes, readable or not."""
        content, path = self.stored(index)
        return content is not None or path.is_file()

    def stored(self, index: int) -> tuple[bytes | None, Path]:
        """Returns the stored bytes of an image (None for a file) and its path."""
        if self.rows is None:
            return None, Path(os.path.normpath(self.folder / self.images[index].file_name))
        if "frames" in self.rows.column_names:
            return b"", Path()
        image = self.undecoded[index]["video" if self.are_clips else "image"]
        return image["bytes"], Path(image["path"] or "")

    @cached_property
    def undecoded(self) -> "datasets.Dataset":
        from datasets import Image

        assert self.rows is not None
        if self.are_clips:
            return self.rows
        return self.rows.select_columns("image").with_format(None).cast_column("image", Image(decode=False))

    @cached_property
    def mtime_ns(self) -> int:
        """Time of the last change of the dataset's files; the current time for a dataset in memory."""
        files = [] if self.rows is None else [Path(file["filename"]) for file in self.rows.cache_files]
        return max((file.stat().st_mtime_ns for file in files), default=time.time_ns())

    def checksum(self, split: str | None) -> str:
        """Returns a checksum of the images and their order; it does not depend on the path of the folder."""
        return hashlib.sha256(json.dumps([split, self.images]).encode()).hexdigest()


def list_images(
    source: str | os.PathLike, image_folder: str | os.PathLike | None = None, split: str | None = None
) -> ImageList:
    """Lists the images of a folder, of a COCO file or of a dataset.

    The images of a folder are all files with an image suffix, recursively and sorted by name. The id of an image is the
    number at the end of its file name, as in COCO; if these numbers are not unique, it is the position in the list.

    Args:
        source: a folder, or a JSON file `{"images": [{"id", "file_name"}], "annotations": [...]}`. Annotations with
            captions are used; images without any are then left out, and a note counts them.
            Or a dataset with images, such as `images:SOURCE` ([`~hf_ngsan.data.load_data`]).
        image_folder: the folder that file names in a JSON file are relative to; by default that of the file, or
            `images` next to it.
        split: split of a dataset, which is required.

    Raises:
        ExtractionError: there are no images, or the source has another type.
        ValueError: the JSON file or the dataset cannot be read.
    """
    spec, path = str(source), Path(source)
    reader, colon, _ = spec.partition(":")
    is_dataset = reader in READERS and (bool(colon) or not path.exists())
    if image_folder is not None and (is_dataset or path.is_dir()):
        raise ExtractionError(f"--image-folder needs a JSON file, which {source} is not; leave it out.")
    if is_dataset:
        return images_of_dataset(spec, split)
    if path.is_dir():
        return images_of_folder(path)
    if not path.exists() or path.suffix.lower() != ".json":
        fault = "is neither a folder nor a .json file" if path.exists() else "does not exist"
        raise ExtractionError(f"{source} {fault}; give a folder of images or a COCO JSON file.")
    return images_of_coco_file(path, None if image_folder is None else Path(image_folder))


def images_of_dataset(spec: str, split: str | None) -> ImageList:
    if split is None:
        raise ExtractionError(f"{spec} is a dataset; choose the split to read with --split.")
    rows = load_data(spec, split)
    if not {"image", "video", "frames"} & {*rows.column_names}:
        raise ExtractionError(f"{spec}, split {split}, has no images; give one with images, such as images:SOURCE.")
    return list_rows(rows, spec)


def list_rows(rows: "datasets.Dataset", source: str) -> ImageList:
    """Lists the images of rows of a dataset; `source` is its name."""
    has_captions = "captions" in rows.column_names
    known = rows.select_columns([name for name in ("image_id", "file_name", "captions") if name in rows.column_names])
    images = tuple(
        ListedImage(
            int(row["image_id"]),
            row.get("file_name") or str(row["image_id"]),
            tuple(row["captions"]) if has_captions else None,
        )
        for row in known
    )
    kept = ("image_id", "file_name", "image", "video", "frames")
    rows = rows.select_columns([name for name in rows.column_names if name in kept])
    return ImageList(source, images, rows=rows, has_captions=has_captions)


def check_images(parts: Iterable[Any], spec: str) -> None:
    """Decodes each image of `images:` at a reduced size, and one frame of each video; streams are not checked.

    Raises a DataError with the names of missing or damaged images.
    """
    from ..data import reads_files

    lists = [list_rows(rows, spec) for rows in parts if reads_files(rows)]
    jobs = [(images, place) for images in lists for place in range(len(images))]
    faults: list[tuple[str, str]] = []  # names and reasons

    def check(job: tuple[ImageList, int]) -> None:
        images, place = job
        try:
            images.read_clip(place, SimpleNamespace(num_frames=1)) if images.are_clips else images.read(place, 1)
        except (ValueError, OSError) as error:
            faults.append((images.images[place].file_name, sentence(error)))

    with ThreadPoolExecutor() as pool, ProgressDisplay(f"checking {spec}", len(jobs)) as display:
        for done, _ in enumerate(pool.map(check, jobs), 1):
            display.update(done)
    if faults:
        names = ", ".join(name for name, _ in sorted(faults)[:MAX_NAMES]) + ", …" * (len(faults) > MAX_NAMES)
        raise DataError(
            f"{len(faults)} of {len(jobs)} images of {spec} cannot be read: {names}. Replace them or leave them out. "
            f"The first error: {min(faults)[1]}"
        )


def images_of_folder(folder: Path) -> ImageList:
    names = sorted_files(folder)
    numbers = [number for name in names if (number := number_at_the_end(name)) is not None]
    notes: tuple[str, ...] = ()
    if len(set(numbers)) < len(names):
        numbers = list(range(len(names)))
        notes = ("Not every file name ends in a unique number, so image ids are positions in the list of file names.",)
    images = tuple(ListedImage(number, name) for number, name in zip(numbers, names, strict=True))
    return ImageList(str(folder), images, folder, notes=notes)


def images_of_coco_file(file: Path, folder: Path | None) -> ImageList:
    content: Any = read_json(file)
    images = [
        ListedImage(
            record.integer("id"),
            record.string("file_name"),
            tuple(record.fields["captions"]) if "captions" in record.fields else None,
        )
        for record in coco_records(content, file)
    ]
    if folder is None:
        candidates = (file.parent, file.parent / "images")
        folder = next((place for _, name, _ in images for place in candidates if (place / name).is_file()), None)
    files = OwnFiles(folder or file.parent)
    for image in images:  # the file is untrusted
        files.find(image.file_name, str(file))
    if folder is None or not folder.is_dir():
        raise ExtractionError(f"The images of {file} are not in {folder or file.parent}; set --image-folder.")
    listed = tuple(image for image in images if image.captions != ())
    if not listed:
        raise ExtractionError(f"{file} has no images, or none of them has captions.")
    left_out = len(images) - len(listed)
    notes = (f"{file}: {left_out} of {len(images)} images have no caption and were left out.",) if left_out else ()
    return ImageList(str(file), listed, folder, has_captions=listed[0].captions is not None, notes=notes)


@dataclass(frozen=True)
class ImageChange:
    """Changes `{"image_id", "image", "captions"}` before extraction, for images in any order; `description` is JSON."""

    change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    description: Mapping[str, Any]


class PreparedBatch(NamedTuple):
    """A batch of preprocessed images."""

    positions: list[int]  # positions of the readable images in the list
    sizes: list[tuple[int, int]]  # their widths and heights in pixels
    inputs: dict[str, Any]  # `pixel_values` and, if sizes differ, `pixel_mask`; empty without readable images
    unreadable: list[tuple[int, str]]  # position and reason of each other image
    stamps: dict[int, FileStamp]  # stamps of the readable images by position, if they have any
    thumbnails: list[bytes]  # small JPEG copies of them, if requested


def prepare_batch(
    images: ImageList,
    image_processor: Callable[..., Mapping[str, Any]],
    change: ImageChange | None,
    thumbnail_side: int,
    positions: Sequence[int],
) -> PreparedBatch:
    """Reads a batch; an error of one image, of any type, does not affect the others."""
    least_side = least_side_of(image_processor) if change is None else None
    least_side = least_side and max(least_side, thumbnail_side)
    read = partial(read_picture, images, image_processor, change, least_side)
    pictures, unreadable = results_of_readable(images, read, positions)
    try:
        inputs = preprocess(image_processor, [picture for picture, _ in pictures.values()])
    except Exception:  # for example an image of an extreme shape
        alone, failed = results_of_readable(images, lambda p: preprocess(image_processor, [pictures[p][0]]), pictures)
        pictures, unreadable = {position: pictures[position] for position in alone}, unreadable + failed
        inputs = preprocess(image_processor, [picture for picture, _ in pictures.values()])
    first = [picture[0] if isinstance(picture, list) else picture for picture, _ in pictures.values()]
    sizes = [picture.info.get("full size", picture.size) for picture in first]
    thumbnails = []
    for picture in first if thumbnail_side else ():
        file = io.BytesIO()
        picture.thumbnail((thumbnail_side, thumbnail_side))
        picture.save(file, "JPEG", quality=85)
        thumbnails.append(file.getvalue())
    stamps = {position: stamp for position, (_, stamp) in pictures.items() if stamp is not None}
    return PreparedBatch([*pictures], sizes, inputs, unreadable, stamps, thumbnails)


def read_picture(
    images: ImageList, image_processor: Any, change: ImageChange | None, least_side: int | None, position: int
) -> tuple[Any, FileStamp | None]:
    """Returns an image, or the list of the frames of a clip, after a change, and the stamp of its file."""
    picture: Any
    if images.are_clips:
        picture, stamp = images.read_clip(position, image_processor)
    else:
        picture, stamp = images.read(position, least_side)
    if change is not None:
        listed = images.images[position]
        row = {"image_id": listed.image_id, "image": picture, "captions": listed.captions}
        picture = change.change(row)["image"]
    return picture, stamp


def preprocess(image_processor: Callable[..., Mapping[str, Any]], pictures: Sequence[Any]) -> dict[str, Any]:
    """Returns the inputs of a vision encoder for images, or for clips as lists of frames."""
    if not pictures:
        return {}
    are_clips = isinstance(pictures[0], list)
    frames = [frame for clip in pictures for frame in clip] if are_clips else pictures
    outputs = image_processor(images=frames, return_tensors="pt")
    if not are_clips:
        return dict(outputs)
    from ..models.processing_captioning import pad_clips

    return pad_clips(outputs["pixel_values"].split([*map(len, pictures)]))


def results_of_readable(
    images: ImageList, work: Callable[[int], Any], positions: Iterable[int]
) -> tuple[dict[int, Any], list[tuple[int, str]]]:
    """Returns the results of `work` by position, and the positions of images for which it fails, with the reasons."""
    results, unreadable = {}, []
    for position in positions:
        try:
            results[position] = work(position)
        except MemoryError:
            raise
        except Exception as error:
            names_image = isinstance(error, ImageError | DataError)
            name = images.images[position].file_name
            reason = str(error) if names_image else f"{name} cannot be read ({type_and_reason(error)})."
            unreadable.append((position, " ".join(reason.split())))
    return results, unreadable


def load_batches(
    images: ImageList,
    batches: Sequence[Sequence[int]],
    image_processor: Callable[..., Mapping[str, Any]],
    num_workers: int | None,
    accelerator: Any,
    work: str,
    change: ImageChange | None = None,
    thumbnail_side: int = 0,
) -> Iterator[PreparedBatch]:
    """Yields prepared batches of these positions in the list, in order, and shows the progress of `work`."""
    if num_workers is None:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        num_workers = min(max(processors // int(os.environ.get("LOCAL_WORLD_SIZE", accelerator.num_processes)), 1), 4)
    prepare = partial(prepare_batch, images, image_processor, change, thumbnail_side)
    if isinstance(accelerator, OneProcess):
        loader: Iterable[PreparedBatch] = map_ahead(prepare, batches, max(num_workers, 1))
    else:
        from torch.utils.data import DataLoader

        positions_of_batches: Any = batches  # a sequence works as a dataset
        workers = num_workers if batches else 0
        loader = DataLoader(positions_of_batches, batch_size=None, collate_fn=prepare, num_workers=workers)
    with ProgressDisplay(work, sum(map(len, batches)), shown=accelerator.process_index == 0) as display:
        done = 0
        for batch, positions in zip(loader, batches, strict=True):
            yield batch
            done += len(positions)
            display.update(done)


def map_ahead(function: Callable[[Any], Any], items: Iterable[Any], num_threads: int) -> Iterator[Any]:
    """Yields the results of a function in order, computed by threads that are at most one item each ahead."""
    with ThreadPoolExecutor(num_threads) as pool:
        waiting: deque[Future] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > num_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

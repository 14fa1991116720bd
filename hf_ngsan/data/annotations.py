"""JSON annotation files (COCO, Karpathy's splits, VATEX's captions), joined with features by image id."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from .coco_files import Record, checked_record, in_order, known_id, number_of, read_json, records_by_id, records_of
from .errors import DataError

SPLITS = {"train": "train", "restval": "train", "val": "validation", "test": "test"}
"""Karpathy's names of splits; `restval` is the part of COCO's val2014 that is used for training."""
CAPTIONS_OF_VATEX = {"en": "enCap", "zh": "chCap"}
CHINESE = re.compile("([\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")
MAX_LISTED = 10  # maximum images listed in a message
NAMES = ("cocoid", "videoID", "image_id", "id", "filename")  # fields that identify the image of a skipped record


@dataclass(frozen=True)
class AnnotatedImage:
    """Annotations of one image or video: its id, if the file has ids, its file name without suffix or the name of the
    video, captions (None if the file has no captions at all), split, and width and height in pixels."""

    image_id: int | None = None
    name: str | None = None
    captions: tuple[str, ...] | None = None
    split: str | None = None
    size: tuple[int, int] | None = None

    @property
    def key(self) -> str:
        return f"name {self.name}" if self.image_id is None else f"image_id {self.image_id}"

    def with_more(self, other: "AnnotatedImage") -> "AnnotatedImage":
        """Merges the annotations of two files; the result has the captions of both."""
        captions = self.captions if other.captions is None else (self.captions or ()) + other.captions
        name, split, size = self.name or other.name, self.split or other.split, self.size or other.size
        return replace(self, name=name, captions=captions, split=split, size=size)


def parse_records(
    records: Iterable[Record], read: Callable[[Record], Any], key: Callable[[Any], object], skipped: list[dict] | None
) -> Iterator[tuple[Record, Any]]:
    """Yields records and their values from `read`; broken records and repeated `key`s are skipped or an error."""
    places: dict[object, str] = {}
    for record in records:
        try:
            content = read(record)
            if key(content) in places:
                raise DataError(f"{record.where}: {key(content)} is already in {places[key(content)]}.")
        except DataError as error:
            refuse_record(record, error, skipped)
            continue
        places[key(content)] = record.where
        yield record, content


def refuse_record(record: Record, error: DataError, skipped: list[dict] | None) -> None:
    """Adds a broken record to the list, or raises a DataError if there is no list."""
    if skipped is None:
        raise DataError(f"{str(error).rstrip('.')} (--skip-errors skips it).") from None
    name = next((record.fields[field] for field in NAMES if record.fields.get(field) is not None), None)
    skipped.append({"image_id": name, "file_name": record.where, "reason": str(error)})


def has_any(records: object, field: str) -> bool:
    """Returns whether a value is a list in which some object has a field."""
    return isinstance(records, list) and any(field in record for record in records if isinstance(record, dict))


def is_coco(document: Any) -> bool:
    return isinstance(document, dict) and {"images", "annotations"} <= document.keys()


def coco_records(document: dict, path: Path) -> list[Record]:
    """Returns the images of a file, with `captions` if its annotations have captions."""
    images = records_by_id(document, "images", path)
    if not has_any(document.get("annotations"), "caption"):
        return list(images.values())
    captions: dict[int, list[str]] = {image_id: [] for image_id in images}
    for annotation in in_order(records_of(document, "annotations", path)):
        image_id, text = known_id(annotation, "image_id", captions), annotation.text("caption")
        captions[image_id] += [text] if text else []
    return [Record(image.where, {**image.fields, "captions": captions[image_id]}) for image_id, image in images.items()]


def read_coco_image(image: Record) -> AnnotatedImage:
    name, captions = image.fields.get("file_name"), image.fields.get("captions")
    return AnnotatedImage(
        image.integer("id"),
        Path(name).stem if isinstance(name, str) else None,
        None if captions is None else tuple(captions),
        size=image.size() if {"width", "height"} <= image.fields.keys() else None,
    )


def is_karpathy(document: Any) -> bool:
    return isinstance(document, dict) and has_any(document.get("images"), "sentences")


def karpathy_records(document: dict, path: Path) -> list[Record]:
    """Returns the images of a split file; if one image has the field `cocoid`, all must have it."""
    images = records_of(document, "images", path)
    more = {"cocoid": None} if any("cocoid" in image.fields for image in images) else {}
    return [Record(image.where, {**more, **image.fields}) for image in images]


def read_karpathy_image(image: Record) -> AnnotatedImage:
    stem = Path(image.string("filename")).stem
    number = number_of(stem)
    image_id = image.integer("cocoid") if "cocoid" in image.fields else None
    if image_id is not None and number not in (None, image_id):
        raise image.error("cocoid", f"must be the number in the filename, {number}")
    split = SPLITS.get(image.string("split"))
    if split is None:
        raise image.error("split", f"must be one of {', '.join(SPLITS)}")
    captions = tuple(sentence.text("raw") for sentence in image.records("sentences"))
    if not captions or not all(captions):
        raise image.error("sentences", "must have at least one caption, and no caption without words")
    return AnnotatedImage(image_id, stem, captions, split)


def is_vatex_captions(document: Any) -> bool:
    return has_any(document, "videoID")


def vatex_records(document: Any, path: Path) -> list[Record]:
    return [checked_record(f"{path}, row {place}", video) for place, video in enumerate(document)]


def read_video_captions(video: Record, language: str = "en") -> AnnotatedImage:
    """Returns a video with its captions in one language, `"en"` or `"zh"`."""
    field = CAPTIONS_OF_VATEX[language]
    captions = video.fields.get(field)
    if not isinstance(captions, list) or not captions or not all(isinstance(c, str) and c.strip() for c in captions):
        raise video.error(field, "must be a list of non-empty captions")
    if language == "zh":
        captions = [CHINESE.sub(r" \1 ", caption) for caption in captions]  # each character becomes a word
    return AnnotatedImage(None, video.string("videoID"), tuple(" ".join(caption.split()) for caption in captions))


class AnnotationFormat(NamedTuple):
    """A layout of annotation files: functions that recognise it, list its image records, and read a record."""

    name: str
    summary: str
    fits: Callable[[Any], bool]
    records: Callable[[Any, Path], list[Record]]
    read: Callable[[Record], AnnotatedImage]


KARPATHY = "Karpathy's split files of COCO, Flickr8k and Flickr30k"
ANNOTATION_FORMATS = {
    layout.name: layout
    for layout in (
        AnnotationFormat("karpathy", KARPATHY, is_karpathy, karpathy_records, read_karpathy_image),
        AnnotationFormat("coco", "COCO's captions_*.json and instances_*.json", is_coco, coco_records, read_coco_image),
        AnnotationFormat("vatex-captions", "VATEX's captions", is_vatex_captions, vatex_records, read_video_captions),
    )
}


def annotation_format(document: object, path: Path) -> AnnotationFormat:
    """Returns the format of a JSON document; raises a DataError if it has none."""
    for layout in ANNOTATION_FORMATS.values():
        if layout.fits(document):
            return layout
    known = "; ".join(f"{layout.name}: {layout.summary}" for layout in ANNOTATION_FORMATS.values())
    raise DataError(f"{path} is JSON in an unknown format; the known ones are {known}.")


class Annotations:
    """The annotations of a conversion, by image; see [`parse_records`] for `skipped`."""

    def __init__(self, paths: Iterable[Path], skipped: list[dict] | None) -> None:
        self.paths = list(paths)
        images: dict[str, AnnotatedImage] = {}
        for path in self.paths:
            document = read_json(path)
            layout = annotation_format(document, path)
            for _, image in parse_records(layout.records(document, path), layout.read, attrgetter("key"), skipped):
                images[image.key] = images[image.key].with_more(image) if image.key in images else image
        self.images = list(images.values())
        self.has_captions = any(image.captions is not None for image in self.images)
        self.has_split = any(image.split is not None for image in self.images)
        self.by_name = {image.name: image for image in self.images if image.name is not None}
        ids = (number_of(image.name or "") if image.image_id is None else image.image_id for image in self.images)
        self.by_id = {number: image for number, image in zip(ids, self.images, strict=True) if number is not None}


def listing(values: Collection[object]) -> str:
    return ", ".join(map(str, islice(values, MAX_LISTED))) + (", ..." if len(values) > MAX_LISTED else "")

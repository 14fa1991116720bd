"""Annotation files in JSON: COCO's, Karpathy's splits and VATEX's captions, all read as [`AnnotatedImage`].

```python
document = read_document(path)
entries = annotation_format(document, path).entries(document, path)
for where, image in read_all(entries, lambda image: image.key, skipped=None):
    image.captions
```
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..coco_files import (
    Record,
    checked_record,
    images_by_id,
    in_order,
    number_of,
    read_json,
    records_of,
)
from ..errors import DataError

SPLITS = {"train": "train", "restval": "train", "val": "validation", "test": "test"}
"""Karpathy's names of splits; `restval` is the part of COCO's val2014 that is used for training."""
CAPTIONS_OF_VATEX = {"en": "enCap", "zh": "chCap"}
CHINESE_CHARACTER = re.compile(
    "([\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


@dataclass(frozen=True)
class AnnotatedImage:
    """The annotations of one image or video.

    Attributes:
        ids: its possible ids by kind: `image_id` if the file has one; else `imgid`, its place in a Karpathy file, and
            `filename`, if file names are numbers.
        name: name of its file, without folder and suffix, or of the video; None if unknown.
        captions: captions; None if the file has no captions of any image.
        split: `train`, `validation`, `test` or another; None if unknown.
        size: width and height in pixels; None if unknown.
    """

    ids: dict[str, int]
    name: str | None = None
    captions: tuple[str, ...] | None = None
    split: str | None = None
    size: tuple[int, int] | None = None

    @property
    def key(self) -> str:
        """Text that identifies the image."""
        return ", ".join(f"{kind} {number}" for kind, number in self.ids.items()) or f"name {self.name}"

    def with_more(self, other: "AnnotatedImage") -> "AnnotatedImage":
        """Returns the annotations of two files, with the captions of both."""
        has_captions = self.captions is not None or other.captions is not None
        captions = (self.captions or ()) + (other.captions or ()) if has_captions else None
        return replace(
            self,
            name=self.name or other.name,
            captions=captions,
            split=self.split or other.split,
            size=self.size or other.size,
        )


class AnnotationEntry(NamedTuple):
    """A record of an annotation file: its name in messages, the name of its image, and a function that reads it."""

    where: str
    name: object
    read: Callable[[], Any]


class AnnotationFormat(NamedTuple):
    """One layout of annotation files in JSON: name, summary, test of a document, and iterator over its records."""

    name: str
    summary: str
    fits: Callable[[object], bool]
    entries: Callable[[Any, Path], Iterator[AnnotationEntry]]


def read_document(path: Path) -> object:
    """Reads a JSON file; raises a DataError for anything else."""
    return read_json(path)


def annotation_format(document: object, path: Path) -> AnnotationFormat:
    """Returns the format of a JSON document; raises a DataError if it has none."""
    for one in FORMATS.values():
        if one.fits(document):
            return one
    known = "; ".join(f"{one.name}: {one.summary}" for one in FORMATS.values())
    raise DataError(f"{path} is JSON of no known format; there are {known}.")


def read_all(
    entries: Iterable[AnnotationEntry], key: Callable[[Any], str], skipped: list[dict] | None
) -> Iterator[tuple[str, Any]]:
    """Yields the place and the content of each record.

    Args:
        entries: records of one file.
        key: returns a text that must be unique for the content of a record.
        skipped: gets `{"image_id", "file_name", "reason"}` of broken records; if None, these are errors.

    Raises:
        DataError: a record is broken, or occurs twice.
    """
    places: dict[str, str] = {}
    for entry in entries:
        try:
            found = entry.read()
            if key(found) in places:
                raise DataError(f"{entry.where}: {key(found)} is in {places[key(found)]} already.")
        except DataError as error:
            refuse_record(entry.name, entry.where, error, skipped)
            continue
        places[key(found)] = entry.where
        yield entry.where, found


def refuse_record(image_id: object, where: str, error: ValueError, skipped: list[dict] | None) -> None:
    """Adds a broken record to the list; raises a DataError without a list."""
    if skipped is None:
        raise DataError(f"{str(error).rstrip('.')} (--skip-broken leaves it out).") from None
    skipped.append({"image_id": image_id, "file_name": where, "reason": str(error)})


def has_any(records: object, field: str) -> bool:
    """Returns whether a value is a list with an object that has a field."""
    return isinstance(records, list) and any(field in one for one in records if isinstance(one, dict))


def is_coco(document: object) -> bool:
    return isinstance(document, dict) and {"images", "annotations"} <= document.keys()


def coco_entries(document: dict, path: Path) -> Iterator[AnnotationEntry]:
    """Yields the images of a file, with captions if its annotations have any."""
    images = images_by_id(document, path)
    annotations = records_of(document, "annotations", path)
    has_captions = has_any(document["annotations"], "caption")
    captions: dict[int, list[str]] = {image_id: [] for image_id in images}
    for annotation in in_order(annotations) if has_captions else ():
        image_id, text = annotation.integer("image_id"), annotation.text("caption")
        if image_id not in captions:
            raise DataError(f"{annotation.where}: image_id {image_id} is not among the 'images'; add the image.")
        captions[image_id] += [text] if text else []
    for image_id, image in images.items():
        own = tuple(captions[image_id]) if has_captions else None
        yield AnnotationEntry(image.where, image_id, partial(read_coco_image, image, image_id, own))


def read_coco_image(image: Record, image_id: int, captions: tuple[str, ...] | None) -> AnnotatedImage:
    name = image.fields.get("file_name")
    size = image.size() if {"width", "height"} <= image.fields.keys() else None
    stem = Path(name).stem if isinstance(name, str) else None
    return AnnotatedImage({"image_id": image_id}, stem, captions, size=size)


def is_karpathy(document: object) -> bool:
    return isinstance(document, dict) and has_any(document.get("images"), "sentences")


def karpathy_entries(document: dict, path: Path) -> Iterator[AnnotationEntry]:
    """Yields the images of `dataset_coco.json`, `dataset_flickr8k.json` or `dataset_flickr30k.json`."""
    images = records_of(document, "images", path)
    is_of_coco = any("cocoid" in image.fields for image in images)
    for image in images:
        name = image.fields.get("cocoid", image.fields.get("filename"))
        yield AnnotationEntry(image.where, name, partial(read_karpathy_image, image, is_of_coco))


def read_karpathy_image(image: Record, is_of_coco: bool) -> AnnotatedImage:
    stem = Path(image.string("filename")).stem
    number = number_of(stem)
    if is_of_coco:
        ids = {"image_id": image.integer("cocoid")}
        if number is not None and number != ids["image_id"]:
            raise DataError(f"{image.where}: cocoid is {ids['image_id']}, but filename is that of image {number}.")
    else:
        ids = {"imgid": image.integer("imgid"), **({} if number is None else {"filename": number})}
    split = SPLITS[image.choice("split", SPLITS)]
    captions = tuple(read_sentence(sentence) for sentence in image.records("sentences"))
    if not captions:
        raise image.error("sentences", "must have one caption at least")
    return AnnotatedImage(ids, stem, captions, split)


def read_sentence(sentence: Record) -> str:
    tokens = sentence.fields.get("tokens")
    if not isinstance(tokens, list) or not tokens:
        raise sentence.error("tokens", "must have one word at least")
    return sentence.text("raw") or " ".join(map(str, tokens))


def is_vatex_captions(document: object) -> bool:
    return has_any(document, "videoID")


def vatex_entries(document: list, path: Path, language: str = "en") -> Iterator[AnnotationEntry]:
    """Yields the videos of a file, with their captions in one language (`"en"` or `"zh"`)."""
    for place, video in enumerate(document):
        record = checked_record(f"{path}, row {place}", video)
        yield AnnotationEntry(record.where, record.fields.get("videoID"), partial(read_video, record, language))


def read_video(video: Record, language: str) -> AnnotatedImage:
    field = CAPTIONS_OF_VATEX[language]
    captions = video.strings(field)
    if not captions or not all(map(str.strip, captions)):
        raise video.error(field, "must be a list of captions, none of them empty")
    if language == "zh":
        captions = [CHINESE_CHARACTER.sub(r" \1 ", caption) for caption in captions]  # each character becomes a word
    return AnnotatedImage({}, video.string("videoID"), tuple(" ".join(caption.split()) for caption in captions))


FORMATS = {
    one.name: one
    for one in (
        AnnotationFormat(
            "karpathy", "Karpathy's split files of COCO, Flickr8k and Flickr30k", is_karpathy, karpathy_entries
        ),
        AnnotationFormat("coco", "COCO's captions_*.json and instances_*.json", is_coco, coco_entries),
        AnnotationFormat("vatex-captions", "VATEX's captions", is_vatex_captions, vatex_entries),
    )
}

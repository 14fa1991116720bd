"""Karpathy's split files: `dataset_coco.json`, `dataset_flickr8k.json`, `dataset_flickr30k.json`."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ...ground.coco_files import Record, check_encodable, checked_record, records_of
from ..errors import DataError
from .annotations import AnnotatedImage, AnnotationEntry
from .record import number_of

SPLITS = {"train": "train", "restval": "train", "val": "validation", "test": "test"}
"""What the files call splits, and what they are; COCO's training split takes what validation leaves over."""


def is_karpathy(document: object) -> bool:
    images = document.get("images") if isinstance(document, dict) else None
    return isinstance(images, list) and any("sentences" in image for image in images if isinstance(image, dict))


def karpathy_entries(document: dict, path: Path) -> Iterator[AnnotationEntry]:
    """Yields the images of a split file."""
    images = records_of(document, "images", path)
    is_coco = any("cocoid" in image.fields for image in images)
    for image in images:
        name = image.fields.get("cocoid", image.fields.get("filename"))
        yield AnnotationEntry(image.where, name, partial(read_image, image, is_coco))


def read_image(image: Record, is_coco: bool) -> AnnotatedImage:
    """Returns what a record says; a DataError or CocoFileError says what is wrong with it."""
    stem = Path(image.string("filename")).stem
    number = number_of(stem)
    if is_coco:
        ids = {"image_id": image.integer("cocoid")}
        if number is not None and number != ids["image_id"]:
            raise DataError(f"{image.where}: cocoid is {ids['image_id']}, but filename is that of image {number}.")
    else:
        ids = {"imgid": image.integer("imgid"), **({} if number is None else {"filename": number})}
    split = image.string("split")
    if split not in SPLITS:
        raise DataError(f"{image.where}: split is {split!r:.60}; it must be one of {', '.join(SPLITS)}.")
    sentences = image.fields.get("sentences")
    if not isinstance(sentences, list) or not sentences:
        raise DataError(f"{image.where}: sentences is empty or missing; an image has one caption at least.")
    captions = tuple(
        read_sentence(checked_record(f"{image.where}, sentences[{place}]", one)) for place, one in enumerate(sentences)
    )
    return AnnotatedImage(ids, stem, captions, SPLITS[split])


def read_sentence(sentence: Record) -> str:
    tokens = sentence.fields.get("tokens")
    if not isinstance(tokens, list) or not tokens:
        raise DataError(f"{sentence.where}: tokens is empty or missing; a caption has one word at least.")
    text = " ".join(sentence.string("raw").split())
    check_encodable(text, sentence.where, "raw")
    return text or " ".join(map(str, tokens))

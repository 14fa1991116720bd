"""VATEX's captions: a list of videos with English captions (the Chinese ones are not read)."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ...coco_files import Record, check_encodable, checked_record
from ..errors import DataError
from .annotations import AnnotatedImage, AnnotationEntry


def is_vatex(document: object) -> bool:
    return isinstance(document, list) and any("videoID" in video for video in document if isinstance(video, dict))


def vatex_entries(document: list, path: Path) -> Iterator[AnnotationEntry]:
    """Yields the videos of a file."""
    for place, video in enumerate(document):
        record = checked_record(f"{path}, row {place}", video)
        yield AnnotationEntry(record.where, record.fields.get("videoID"), partial(read_video, record))


def read_video(video: Record) -> AnnotatedImage:
    captions = video.fields.get("enCap")
    if (
        not isinstance(captions, list)
        or not captions
        or not all(isinstance(one, str) and one.strip() for one in captions)
    ):
        raise DataError(f"{video.where}: enCap is empty or missing; it must be a list of captions.")
    for caption in captions:
        check_encodable(caption, video.where, "enCap")
    return AnnotatedImage({}, video.string("videoID"), tuple(" ".join(caption.split()) for caption in captions))

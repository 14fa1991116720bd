"""VATEX's captions: a list of videos with English and Chinese captions."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ...ground.coco_files import Record, check_encodable, checked_record
from ..errors import DataError
from .annotations import AnnotatedImage, AnnotationEntry

FIELDS = {"en": "enCap", "zh": "chCap"}
CHINESE_CHARACTER = re.compile(
    "([\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


def is_vatex(document: object) -> bool:
    return isinstance(document, list) and any("videoID" in video for video in document if isinstance(video, dict))


def vatex_entries(document: list, path: Path, language: str = "en") -> Iterator[AnnotationEntry]:
    """Yields the videos of a file, with their captions in one language (`"en"` or `"zh"`)."""
    for place, video in enumerate(document):
        record = checked_record(f"{path}, row {place}", video)
        yield AnnotationEntry(record.where, record.fields.get("videoID"), partial(read_video, record, language))


def read_video(video: Record, language: str) -> AnnotatedImage:
    field = FIELDS[language]
    captions = video.fields.get(field)
    if (
        not isinstance(captions, list)
        or not captions
        or not all(isinstance(one, str) and one.strip() for one in captions)
    ):
        raise DataError(f"{video.where}: {field} is empty or missing; it must be a list of captions.")
    for caption in captions:
        check_encodable(caption, video.where, field)
    if language == "zh":
        captions = map(split_characters, captions)
    return AnnotatedImage({}, video.string("videoID"), tuple(" ".join(caption.split()) for caption in captions))


def split_characters(text: str) -> str:
    """Returns a Chinese text with spaces around every Chinese character, which then are its words."""
    return CHINESE_CHARACTER.sub(r" \1 ", text)

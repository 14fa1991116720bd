"""COCO files: captions, instances and results; captions and results may also be JSON lines."""

import json
import operator
import os
import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

from ..io.files import write_output
from .errors import DataError

NUMBERED_NAME = re.compile(r"(?:COCO_[A-Za-z0-9]+_)?([0-9]{1,18})(?:\.jpe?g)?")
HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # a lone surrogate; JSON can escape it, but UTF-8 cannot encode it


class Record(NamedTuple):
    """An object in a JSON file, and its position for messages; methods return a field or raise a DataError."""

    where: str
    fields: dict

    def integer(self, field: str) -> int:
        value = self.fields.get(field)
        if type(value) is not int or abs(value) >= 2**63:
            raise self.error(field, "must be a 64-bit integer")
        return value

    def string(self, field: str) -> str:
        value = self.fields.get(field)
        if not isinstance(value, str) or HALF_CHARACTER.search(value):
            raise self.error(field, "must be a string without lone surrogates")
        return value

    def text(self, field: str) -> str:
        """Returns a string with single spaces between words and without line breaks."""
        return " ".join(self.string(field).split())

    def identifier(self, field: str) -> int | str:
        value = self.fields.get(field)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.error(field, "must be an integer or a string")
        return value

    def records(self, field: str) -> list["Record"]:
        values = self.fields.get(field)
        if not isinstance(values, list):
            raise self.error(field, "must be a list of objects")
        return [checked_record(f"{self.where}, {field}[{place}]", value) for place, value in enumerate(values)]

    def size(self) -> tuple[int, int]:
        """Returns the fields `width` and `height` in pixels."""
        size = self.integer("width"), self.integer("height")
        if not all(1 <= side < 2**31 for side in size):
            raise DataError(f"{self.where}: width and height are {size}; they must be numbers of pixels.")
        return size

    def error(self, field: str, demand: str) -> DataError:
        state = f"is {self.fields[field]!r:.60}" if field in self.fields else "is missing"
        return DataError(f"{self.where}: {field} {state}; it {demand}.")


def checked_record(where: str, value: object) -> Record:
    if not isinstance(value, dict):
        raise DataError(f"{where} is {value!r:.60}; it must be an object.")
    return Record(where, value)


def read_results(path: str | os.PathLike) -> dict[int | str, str]:
    """Reads captioning results: the caption of each image id, in the order of the file.

    The file is a JSON list of `{"image_id", "caption"}`, one per image, or JSON lines of such objects. Image ids are
    integers or strings; `7` and `"7"` are the same image. Raises a DataError for an invalid file.
    """
    captions: dict[int | str, str] = {}
    places: dict[str, str] = {}
    for record in captioned_records(path):
        image_id, caption = record.identifier("image_id"), record.string("caption")
        if str(image_id) in places:
            first = places[str(image_id)].removeprefix(f"{path}, ")
            raise DataError(f"{record.where}: image {image_id} already has a caption, in {first}; give only one.")
        captions[image_id], places[str(image_id)] = caption, record.where
    if not captions:
        raise DataError(f"{path} has no results.")
    return captions


def read_references(path: str | os.PathLike) -> dict[int | str, list[str]]:
    """Reads the captions of each image id: images in [`id_order`], captions in the order of annotation ids.

    The file is a COCO captions file, a JSON object `{"annotations": [{"image_id", "id", "caption"}]}`, or JSON lines
    with one annotation each. `7` and `"7"` are the same image. Raises a DataError for an invalid file.
    """
    names: dict[str, int | str] = {}
    references: dict[int | str, list[str]] = {}
    for annotation in in_order(captioned_records(path)):
        image_id = annotation.identifier("image_id")
        image_id = names.setdefault(str(image_id), image_id)
        references.setdefault(image_id, []).append(annotation.string("caption"))
    if not references:
        raise DataError(f"{path} has no captions.")
    return {image_id: references[image_id] for image_id in sorted(references, key=id_order)}


def match_results(
    results: Mapping[int | str, str],
    references: Mapping[int | str, list[str]],
    results_path: str | os.PathLike = "the results",
    references_path: str | os.PathLike = "the references",
) -> tuple[list[int | str], list[str], list[list[str]]]:
    """Returns `(image_ids, predictions, references)` of the images with a result, in the order of image ids. Raises a
    DataError with both paths for an image without references. The ids `7` and `"7"` are the same image."""
    by_text = {str(image_id): captions for image_id, captions in references.items()}
    unknown = [image_id for image_id in results if str(image_id) not in by_text]
    if unknown:
        problem = f"{results_path} has {len(unknown)} image(s) without captions in {references_path}"
        raise DataError(f"{problem}: {', '.join(map(str, unknown[:5]))}; check that both have the same split.")
    image_ids = sorted(results, key=id_order)
    return image_ids, [results[key] for key in image_ids], [by_text[str(key)] for key in image_ids]


def write_caption_file(path: str | os.PathLike, image_ids: Iterable, captions: Iterable[Iterable[str]]) -> int:
    """Writes a COCO captions file atomically, as references for `hf-ngsan score` and pycocotools; returns the number of
    captions. Raises a ValueError for a repeated image id or an image without captions."""
    annotations: list[dict] = []
    places: dict[str, int] = {}
    images = []
    for row, (image_id, texts) in enumerate(zip(image_ids, captions, strict=True)):
        image_id = image_id if isinstance(image_id, str) else operator.index(image_id)
        if places.setdefault(str(image_id), row) != row:
            raise ValueError(f"Image id {image_id} is in rows {places[str(image_id)]} and {row}; ids must be unique.")
        texts = texts if isinstance(texts, str) else list(texts)
        if isinstance(texts, str) or not texts:
            raise ValueError(f"The captions of image {image_id} are {texts!r:.60}; they must be a list of strings.")
        images.append({"id": image_id})
        for text in texts:
            annotations.append({"image_id": image_id, "id": len(annotations) + 1, "caption": text})
    # coco-caption needs the first three
    content = {"info": {}, "licenses": [], "type": "captions", "images": images, "annotations": annotations}
    write_output(path, json.dumps(content, ensure_ascii=False))
    return len(annotations)


def number_of(name: str) -> int | None:
    """Returns 391895 for `391895` and for `COCO_val2014_000000391895.jpg`; None for other names."""
    match = NUMBERED_NAME.fullmatch(name)
    return int(match[1]) if match else None


def number_at_the_end(name: str) -> int | None:
    """Returns 391895 for `val2014/COCO_val2014_000000391895.jpg`, and for any other name with this ending."""
    digits = re.search(r"[0-9]+$", PurePath(name).stem)
    return int(digits[0]) if digits and len(digits[0]) < 19 else None


def id_order(image_id: int | str) -> tuple[bool, int, str]:
    """Returns a key that sorts integers, also those written as strings, by value and before other strings."""
    text = str(image_id)
    is_integer = re.fullmatch("-?[0-9]{1,400}", text) is not None
    return not is_integer, int(text) if is_integer else 0, text


def records_by_id(content: object, key: str, path: str | os.PathLike) -> dict[int, Record]:
    """Returns the objects of the list `key` of a COCO file by `id`; raises a DataError for a repeated id."""
    records: dict[int, Record] = {}
    for record in records_of(content, key, path):
        number = record.integer("id")
        if number in records:
            raise DataError(f"{record.where}: id {number} occurs twice; ids must be unique.")
        records[number] = record
    return records


def known_id(record: Record, field: str, known: Container[int]) -> int:
    """Returns a field that is the id of another record; raises a DataError for an unknown id."""
    number = record.integer(field)
    if number not in known:
        raise record.error(field, "must be the id of one of the images or categories")
    return number


def records_of(content: object, key: str, path: str | os.PathLike) -> list[Record]:
    """Returns the objects of the list `key` of a COCO file; raises a DataError if there is no such list."""
    return checked_record(str(path), content).records(key)


def in_order(annotations: Iterable[Record]) -> list[Record]:
    """Returns annotations sorted by `id`, or in file order if none has an id; raises a DataError for invalid ids."""
    annotations = list(annotations)
    if not any("id" in annotation.fields for annotation in annotations):
        return annotations
    return sorted(annotations, key=lambda annotation: annotation.integer("id"))


def read_json(path: str | os.PathLike) -> object:
    """Reads a JSON file; raises a DataError for invalid JSON and an OSError for an unreadable file."""
    [(_, document), *more] = read_values(path)
    if more:
        raise DataError(f"{path} is not valid JSON (line {more[0][0]}: there are data after the end).")
    return document


def captioned_records(path: str | os.PathLike) -> list[Record]:
    """Reads objects with image id and caption from a list, JSON lines, or the `annotations` of a COCO file."""
    values = read_values(path)
    document = values[0][1]
    if len(values) > 1 or (isinstance(document, dict) and "image_id" in document):
        return [checked_record(f"{path}, line {line}", value) for line, value in values]
    if isinstance(document, list):
        return [checked_record(f"{path}, row {number}", row) for number, row in enumerate(document)]
    return records_of(document, "annotations", path)


def read_json_lines(path: str | os.PathLike) -> list[Record]:
    return [checked_record(f"{path}, line {line}", value) for line, value in read_values(path)]


def read_values(path: str | os.PathLike) -> list[tuple[int, object]]:
    """Reads one JSON value, or one per line, with line numbers."""
    content, number = Path(path).read_bytes(), 1
    try:
        text = content.decode(json.detect_encoding(content))
        try:
            return [(1, json.loads(text))]
        except json.JSONDecodeError as error:
            if error.msg != "Extra data":
                raise
        values = []
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                values.append((number, json.loads(line)))
        return values
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON (from line {number}: {error}); download it again.") from None

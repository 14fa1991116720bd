"""COCO files: captions, instances and results; captions and results may be JSON lines too.

```python
read_references("captions_val2014.json")  # {391895: ["A man with a red helmet ...", ...], ...}
read_results("results.json")  # {391895: "a man on a motorcycle"}
```

Errors name the file, the record and the field: "captions.json, annotations[3]: caption is missing; it must be ...".
"""

import json
import operator
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, SupportsIndex

from .files import write_output

MAX_DEVICE_BYTES = 2**24
"""Bytes that are read of a character device at most: one such as /dev/zero never ends."""
MAX_INTEGER = 2**63 - 1
MAX_DIGITS = 400
"""Digits and sign of the longest integer that is parsed; Python refuses more than 4,300."""

NUMBERED_NAME = re.compile(r"(?:COCO_[A-Za-z0-9]+_)?([0-9]{1,18})(?:\.jpe?g)?")
NOT_BLANK = re.compile(r"[^ \t\n\r]")


class CocoFileError(ValueError):
    """A COCO file that cannot be used: the message names the file, the record and the field."""


class LongInteger:
    """An integer of a JSON file with more than `MAX_DIGITS` digits, kept for the error."""

    def __init__(self, digits: str) -> None:
        self.digits = digits

    def __repr__(self) -> str:
        return f"{self.digits[:20]}... ({len(self.digits.lstrip('-'))} digits)"


def parse_integer(digits: str) -> int | LongInteger:
    return int(digits) if len(digits) <= MAX_DIGITS else LongInteger(digits)


@dataclass(frozen=True)
class Record:
    """An object in a COCO file.

    Attributes:
        where: its place in messages: the file, the list and the index.
        fields: the object.
    """

    where: str
    fields: dict

    def integer(self, field: str) -> int:
        """Returns a field that must be an integer of 64 bits; raises a CocoFileError otherwise."""
        value = self.fields.get(field)
        if isinstance(value, bool) or not isinstance(value, int | LongInteger):
            raise self.error(field, "must be an integer")
        if isinstance(value, LongInteger) or abs(value) > MAX_INTEGER:
            raise CocoFileError(f"{self.where}: {field} is {value!s:.60}, which is beyond 64 bits; give a smaller one.")
        return value

    def string(self, field: str) -> str:
        """Returns a field that must be a string; raises a CocoFileError otherwise."""
        value = self.fields.get(field)
        if not isinstance(value, str):
            raise self.error(field, "must be a string")
        return value

    def identifier(self, field: str) -> int | str:
        """Returns a field that must be an integer or a string; raises a CocoFileError otherwise.

        An integer may have `MAX_DIGITS` digits, and a string must be valid Unicode.
        """
        value = self.fields.get(field)
        if isinstance(value, bool) or not isinstance(value, int | str | LongInteger):
            raise self.error(field, "must be an integer or a string")
        if isinstance(value, LongInteger):
            raise self.error(field, f"may have {MAX_DIGITS} digits at most")
        check_encodable(str(value), self.where, field)
        return value

    def encodable(self, field: str) -> str:
        """Returns a field that must be a string of valid Unicode; raises a CocoFileError otherwise."""
        value = self.string(field)
        check_encodable(value, self.where, field)
        return value

    def text(self, field: str) -> str:
        """Returns [`encodable`] with single blanks between words and without line breaks."""
        return " ".join(self.encodable(field).split())

    def strings(self, field: str) -> list[str]:
        """Returns a field that must be a list of strings of valid Unicode; raises a CocoFileError otherwise."""
        values = self.fields.get(field)
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self.error(field, "must be a list of strings")
        for value in values:
            check_encodable(value, self.where, field)
        return values

    def records(self, field: str) -> list["Record"]:
        """Returns a field that must be a list of objects; raises a CocoFileError otherwise."""
        values = self.fields.get(field)
        if not isinstance(values, list):
            raise self.error(field, "must be a list of objects")
        return [checked_record(f"{self.where}, {field}[{place}]", value) for place, value in enumerate(values)]

    def choice(self, field: str, known: Iterable[Any]) -> Any:
        """Returns a field that must be one of some values; raises a CocoFileError otherwise."""
        value = self.fields.get(field)
        if not any(type(value) is type(one) and value == one for one in known):
            raise self.error(field, f"must be one of {', '.join(map(str, known))}")
        return value

    def size(self) -> tuple[int, int]:
        """Returns the fields `width` and `height`; raises a CocoFileError unless they are numbers of pixels."""
        size = self.integer("width"), self.integer("height")
        if not all(1 <= side < 2**31 for side in size):
            raise CocoFileError(f"{self.where}: width and height are {size}; they must be numbers of pixels.")
        return size

    def error(self, field: str, demand: str) -> CocoFileError:
        found = f"is {self.fields[field]!r:.60}" if field in self.fields else "is missing"
        return CocoFileError(f"{self.where}: {field} {found}; it {demand}.")


def read_results(path: str | os.PathLike) -> dict[int | str, str]:
    """Reads the results of captioning.

    Args:
        path: a COCO result file, which is a JSON list of `{"image_id", "caption"}`, one an image, or JSON lines with
            such an object each. Image ids are integers or strings; `7` and `"7"` name the same image.

    Returns:
        The caption of each image id, in the order of the file.

    Raises:
        FileNotFoundError, IsADirectoryError: the path names no file.
        CocoFileError: the content is something else, or an image occurs twice.
    """
    document, lines = read_json_or_lines(path)
    return captions_of_results(result_records(document, path) if lines is None else lines, path)


def read_references(path: str | os.PathLike) -> dict[int | str, list[str]]:
    """Reads the reference captions of images.

    Args:
        path: a COCO captions file, which is a JSON object `{"annotations": [{"image_id", "id", "caption"}]}`, or JSON
            lines with an annotation each. Image ids are integers or strings; `7` and `"7"` name the same image.

    Returns:
        The captions of each image id: images in [`id_order`], captions in the order of annotation ids.

    Raises:
        FileNotFoundError, IsADirectoryError: the path names no file.
        CocoFileError: the content is something else.
    """
    document, lines = read_json_or_lines(path)
    annotations = records_of(checked_object(document, path), "annotations", path) if lines is None else lines
    names: dict[str, int | str] = {}
    references: dict[int | str, list[str]] = {}
    for annotation in in_order(annotations):
        image_id = annotation.identifier("image_id")
        image_id = names.setdefault(str(image_id), image_id)
        references.setdefault(image_id, []).append(annotation.string("caption"))
    if not references:
        raise CocoFileError(f"{path} holds no captions.")
    return {image_id: references[image_id] for image_id in sorted(references, key=id_order)}


def write_caption_file(
    path: str | os.PathLike, image_ids: Iterable[int | str], captions: Iterable[Iterable[str]]
) -> int:
    """Writes a COCO captions file, whole or not at all, which `hf-ngsan score` and pycocotools take as references.

    Args:
        path: the file; missing parent folders are made.
        image_ids: integers or strings, each once.
        captions: for each image its captions, one or more.

    Returns:
        The number of captions.

    Raises:
        ValueError: there are no images or other numbers of ids and captions, an image id is no integer or string or is
            there twice, an image has no captions, or a caption is no text; nothing is written.
    """
    image_ids, captions = list(image_ids), list(captions)
    if len(image_ids) != len(captions):
        raise ValueError(f"There are {len(image_ids)} image ids, but captions of {len(captions)} images.")
    images: list[dict] = []
    annotations: list[dict] = []
    places: dict[str, int] = {}
    for row, (image_id, texts) in enumerate(zip(image_ids, captions, strict=True)):
        image_id = plain_id(image_id, row)
        first = places.setdefault(str(image_id), row)
        if first != row:
            raise ValueError(f"Image id {image_id} is in rows {first} and {row}; image ids must be unique.")
        texts = texts if isinstance(texts, str) else list(texts)
        if isinstance(texts, str) or not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"The captions of image {image_id} are {texts!r:.60}; they must be one string or more.")
        images.append({"id": image_id})
        for text in texts:
            check_encodable(text, f"row {row} (image {image_id})")
            annotations.append({"image_id": image_id, "id": len(annotations) + 1, "caption": text})
    if not images:
        raise ValueError(f"There are no images to write to {path}.")
    # coco-caption fails without the first three
    content = {"info": {}, "licenses": [], "type": "captions", "images": images, "annotations": annotations}
    write_output(path, json.dumps(content, ensure_ascii=False))
    return len(annotations)


def plain_id(image_id: object, row: int) -> int | str:
    """Returns an image id, which may be an integer of NumPy or torch; raises a ValueError for another type."""
    if isinstance(image_id, str):
        return image_id
    if isinstance(image_id, bool) or not isinstance(image_id, SupportsIndex):
        raise ValueError(f"The image id of row {row} is {image_id!r:.60}; it must be an integer or a string.")
    return operator.index(image_id)


def number_of(name: str) -> int | None:
    """Returns 391895 for `391895` and for `COCO_val2014_000000391895.jpg`; None for other names."""
    match = NUMBERED_NAME.fullmatch(name)
    return int(match[1]) if match else None


def number_at_the_end(name: str) -> int | None:
    """Returns 391895 for `val2014/COCO_val2014_000000391895.jpg`, and for any other name that ends so."""
    digits = re.search(r"[0-9]+$", PurePath(name).stem)
    return int(digits[0]) if digits and len(digits[0]) < 19 else None


def id_order(image_id: int | str) -> tuple[bool, int, str]:
    """Returns a key that sorts integers, also those written as strings, by value and before other strings."""
    text = str(image_id)
    is_integer = len(text) <= MAX_DIGITS and re.fullmatch("-?[0-9]+", text) is not None
    return not is_integer, int(text) if is_integer else 0, text


def read_object(path: str | os.PathLike) -> dict:
    """Reads a COCO file that is one JSON object.

    Raises:
        FileNotFoundError, IsADirectoryError: the path names no file.
        CocoFileError: the content is something else.
    """
    return checked_object(read_json(path), path)


def records_of(content: dict, key: str, path: str | os.PathLike) -> list[Record]:
    """Returns the objects of the list `key` of a COCO file; raises a CocoFileError without such a list."""
    if not isinstance(content.get(key), list):
        raise CocoFileError(f"{path} has no list {key!r}; a COCO annotation file must have it.")
    return [checked_record(f"{path}, {key}[{index}]", item) for index, item in enumerate(content[key])]


def images_by_id(content: dict, path: str | os.PathLike) -> dict[int, Record]:
    """Returns the objects of the list `images` of a COCO file by their ids, in the order of the file.

    Raises:
        CocoFileError: there is no such list, or an `id` is missing, no integer or not unique.
    """
    images = {}
    for image in records_of(content, "images", path):
        image_id = image.integer("id")
        if image_id in images:
            raise CocoFileError(f"{image.where}: image id {image_id} is there twice; image ids must be unique.")
        images[image_id] = image
    return images


def in_order(annotations: Iterable[Record]) -> list[Record]:
    """Returns annotations by `id`, or in their order if none has one; raises a CocoFileError for a wrong id."""
    annotations = list(annotations)
    if not any("id" in annotation.fields for annotation in annotations):
        return annotations
    return sorted(annotations, key=lambda annotation: annotation.integer("id"))


def check_encodable(text: str, where: str, field: str = "caption") -> None:
    """Raises a CocoFileError for text with lone surrogates, which UTF-8 cannot encode."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise CocoFileError(
            f"{where}: {field} is {text!r:.60}, which holds half of a character and is not UTF-8 text; correct it."
        )


def result_records(document: object, path: str | os.PathLike) -> list[Record]:
    """Returns the objects of a result file; raises a CocoFileError unless it is a list of objects."""
    if not isinstance(document, list):
        raise CocoFileError(
            f'{path} holds {kind_of(document)}; results are a JSON list of objects with "image_id" and "caption", or '
            "one such object a line."
        )
    return [checked_record(f"{path}, row {number}", row) for number, row in enumerate(document)]


def captions_of_results(records: Iterable[Record], path: str | os.PathLike) -> dict[int | str, str]:
    """Returns the caption of each image id; raises a CocoFileError for a wrong field or a repeated image."""
    captions: dict[int | str, str] = {}
    places: dict[str, str] = {}
    for record in records:
        image_id, caption = record.identifier("image_id"), record.string("caption")
        if str(image_id) in places:
            first = places[str(image_id)].removeprefix(f"{path}, ")
            raise CocoFileError(f"{record.where}: image {image_id} has a caption already, in {first}; give it one.")
        captions[image_id], places[str(image_id)] = caption, record.where
    if not captions:
        raise CocoFileError(f"{path} holds no results.")
    return captions


def read_json(path: str | os.PathLike) -> object:
    """Reads a JSON file, device or pipe.

    Raises:
        FileNotFoundError, IsADirectoryError: the path names no file.
        CocoFileError: the content is empty or not valid JSON.
    """
    values = read_values(path)
    if len(values) > 1:
        raise CocoFileError(f"{path} is not valid JSON (line {values[1][0]}: there is more after the end).")
    return values[0][1]


def read_json_or_lines(path: str | os.PathLike) -> tuple[object, list[Record] | None]:
    """Reads JSON, as `(document, None)`, or JSON lines of objects with an image id, as `(None, records)`.

    Raises: as [`read_json`].
    """
    values = read_values(path)
    document = values[0][1]
    if len(values) == 1 and not (isinstance(document, dict) and "image_id" in document):
        return document, None
    return None, [checked_record(f"{path}, line {line}", value) for line, value in values]


def read_json_lines(path: str | os.PathLike) -> list[Record]:
    """Reads the objects of a file of JSON lines.

    Raises: as [`read_json`]; or a value is no object.
    """
    return [checked_record(f"{path}, line {line}", value) for line, value in read_values(path)]


def read_text(path: str | os.PathLike) -> str:
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a JSON file.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    content = read_bytes(path)
    try:
        text = content.decode(json.detect_encoding(content), "surrogatepass")
    except UnicodeDecodeError as error:
        raise CocoFileError(f"{path} is not UTF-8 text (byte {error.start}); it must be a COCO file.") from None
    if not text or text.isspace():
        raise CocoFileError(f"{path} is empty; it must be a COCO file.")
    return text


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file or pipe, or of a device that ends."""
    with open(path, "rb") as file:
        if not stat.S_ISCHR(os.fstat(file.fileno()).st_mode):
            return file.read()
        content = file.read(MAX_DEVICE_BYTES)
    if len(content) == MAX_DEVICE_BYTES:
        raise CocoFileError(f"{path} is a device that does not end; name a COCO file.")
    return content


def read_values(path: str | os.PathLike) -> list[tuple[int, object]]:
    """Reads one or more JSON values, one after another, each with the line where it begins."""
    text = read_text(path)
    decoder, values = json.JSONDecoder(parse_int=parse_integer), []
    line, position = 1, 0
    try:
        while match := NOT_BLANK.search(text, position):
            start = match.start()
            line += text.count("\n", position, start)
            value, position = decoder.raw_decode(text, start)
            values.append((line, value))
            line += text.count("\n", start, position)
    except RecursionError:
        raise CocoFileError(f"{path} is not valid JSON: it holds lists within lists without end.") from None
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise CocoFileError(f"{path} is not valid JSON ({reason}); it may have been cut, get it again.") from None
    return values


def checked_object(document: object, path: str | os.PathLike) -> dict:
    if not isinstance(document, dict):
        raise CocoFileError(f"{path} holds {kind_of(document)}; a COCO annotation file is one object with lists in it.")
    return document


def checked_record(where: str, value: object) -> Record:
    if not isinstance(value, dict):
        raise CocoFileError(f"{where} is {value!r:.60}; it must be an object.")
    return Record(where, value)


def kind_of(document: object) -> str:
    return "null" if document is None else f"a JSON {type(document).__name__}"

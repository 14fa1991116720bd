"""Bottom-up attention: tab-separated lines with boxes and features in base64 (Anderson et al. 2018).

391895  640  360  36  <base64 of 36 x 4 float32>  <base64 of 36 x 2048 float32>
"""

import binascii
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...io.bounds import MAX_REGIONS
from ..errors import DataError
from .arrays import MAX_ARRAY_BYTES
from .record import Entry, FeatureRecord, Source

FIELDS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
MAX_LINE_BYTES = MAX_ARRAY_BYTES // 4
MAX_VALUE = 1e10
"""Largest plausible feature: float64 numbers that are read as float32 are far larger."""
BLOCK = 2**24


class TsvSource(Source):
    """A file of bottom-up attention.

    Args:
        path: of the file.

    Raises:
        DataError: it is empty.
    """

    unit = "bytes"
    is_numbered = True

    def __init__(self, path: Path) -> None:
        self.path, self.total = path, path.stat().st_size
        if not self.total:
            raise DataError(f"{path} is empty; get it again.")

    def entries(self, start: int = 0) -> Iterator[Entry]:
        with open(self.path, "rb") as file:
            number = count_lines(file, start)
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                where = f"{self.path}, line {number}"
                if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                    while (rest := file.readline(BLOCK)) and not rest.endswith(b"\n"):
                        pass
                    yield Entry(None, where, file.tell(), partial(refuse_line, where))
                elif not line.isspace():
                    yield Entry(None, where, file.tell(), partial(parse_line, line, where))


def count_lines(file: BinaryIO, end: int) -> int:
    """Returns the number of lines before a place, and moves the file there."""
    number = 0
    while left := end - file.tell():
        number += file.read(min(left, BLOCK)).count(b"\n")
    return number


def refuse_line(where: str) -> tuple[str, FeatureRecord]:
    raise DataError(f"{where} is longer than {MAX_LINE_BYTES >> 20} MiB; it is no line of bottom-up features.")


def parse_line(line: bytes, where: str) -> tuple[str, FeatureRecord]:
    """Returns the image id and the record of a line; raises a DataError for a damaged one."""
    fields = line.rstrip(b"\r\n").split(b"\t")
    if len(fields) != len(FIELDS):
        raise DataError(f"{where} has {len(fields)} fields; it must have {len(FIELDS)}: {', '.join(FIELDS)}.")
    image_id, width, height, num_boxes = (
        whole_number(text, name, where) for name, text in zip(FIELDS, fields[:4], strict=False)
    )
    where = f"{where} (image {image_id})"
    if min(width, height) < 1 or max(width, height) >= 2**31:
        raise DataError(f"{where}: the image is {width} x {height} pixels; image_w and image_h are wrong.")
    if not 1 <= num_boxes <= MAX_REGIONS:
        raise DataError(f"{where}: num_boxes is {num_boxes}; it must be between 1 and {MAX_REGIONS}.")
    boxes, features = (decode(text, name, where) for name, text in zip(FIELDS[4:], fields[4:], strict=True))
    if boxes.size != num_boxes * 4:
        raise DataError(f"{where}: boxes holds {boxes.size} numbers, but num_boxes is {num_boxes}, which needs 4 each.")
    if not features.size or features.size % num_boxes:
        raise DataError(
            f"{where}: features holds {features.size} numbers, which cannot be divided among {num_boxes} boxes."
        )
    refuse_float64(features, where)
    return str(image_id), FeatureRecord(features.reshape(num_boxes, -1), boxes.reshape(-1, 4), (width, height))


def whole_number(text: bytes, name: str, where: str) -> int:
    if not re.fullmatch(rb"\s*-?[0-9]{1,18}\s*", text):
        raise DataError(f"{where}: {name} is {text[:40].decode(errors='replace')!r}; it must be a whole number.")
    return int(text)


def decode(text: bytes, name: str, where: str) -> np.ndarray:
    try:
        content = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise DataError(f"{where}: {name} is not base64 ({error}); the line is damaged.") from None
    if len(content) % 4:
        raise DataError(f"{where}: {name} decodes to {len(content)} bytes, which are no whole float32 numbers.")
    return np.frombuffer(content, "<f4")


def refuse_float64(features: np.ndarray, where: str) -> None:
    """Raises a DataError for features stored as float64: read as float32 they are wild, as float64 they are not."""
    with np.errstate(invalid="ignore"):
        is_wild = not np.abs(features).max() < MAX_VALUE
        doubles = features.view("<f8") if is_wild and features.size % 2 == 0 else None
        if doubles is not None and np.abs(doubles).max() < MAX_VALUE:
            raise DataError(f"{where}: features are float64, but the format has float32; store them as float32.")

"""Untrusted files that are far more expensive than they seem are rejected."""

import pytest
from PIL import Image

from hf_ngsan.serving.requests import MAX_SCANS, START_OF_SCAN, RequestError, size_of
from tests.data.images.photos import encoded


def jpeg_with_scans(number: int) -> bytes:
    data = encoded(Image.new("RGB", (64, 64)), "JPEG", progressive=True)
    last = data[data.rindex(START_OF_SCAN) : -2]
    return data[:-2] + number * last + data[-2:]


def test_ordinary_files_have_their_size():
    for kind in ("JPEG", "PNG", "WEBP", "GIF"):
        assert size_of(encoded(Image.new("RGB", (64, 48)), kind), "image 0") == (64, 48)
    assert size_of(jpeg_with_scans(5), "image 0") == (64, 64)


def test_files_that_cost_far_more_than_they_seem_are_refused():
    exif = b"Exif\0\0II*\0" + bytes(2**17)
    for content in (
        jpeg_with_scans(MAX_SCANS),
        encoded(Image.new("RGB", (64, 48)), "TIFF"),
        encoded(Image.new("RGB", (64, 64)), "PNG", exif=exif),
        encoded(Image.new("1", (20000, 20000)), "PNG"),
        encoded(Image.new("1", (6400, 8)), "PNG"),
    ):
        with pytest.raises(RequestError):
            size_of(content, "image 0")

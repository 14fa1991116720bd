"""Decoding of images of datasets: raster formats alone, turned upright.

Images keep their stored mode, as in the datasets library; image processors convert them to RGB.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import PIL.Image
import PIL.ImageOps
from datasets.utils.file_utils import xopen

from ...io.files import is_stream
from ..errors import DataError
from ..image_files import FORMATS
from .own_files import HUB, ZIP


class RasterImage(datasets.Image):
    """The type of a column of images that [`decode_image`] decodes."""

    def decode_example(self, value: Any, token_per_repo_id: Any = None) -> PIL.Image.Image | None:
        return decode_image(value, self)


def with_raster_images(dataset: datasets.Dataset) -> datasets.Dataset:
    """Returns a dataset whose columns of images are decoded by [`decode_image`]."""
    for name, feature in dataset.features.items():
        if isinstance(feature, datasets.Image) and feature.decode:
            dataset = dataset.cast_column(name, RasterImage(mode=feature.mode))
    return dataset


def read_image(path: str) -> bytes:
    """Reads a file of a dataset, on the disk, in an archive there or on the Hub; see [`~own_files.OwnFiles`].

    Raises:
        DataError: another URL, or no regular file.
        OSError: the file cannot be read.
    """
    if "://" in path:
        place = path.partition("::")[2] if path.startswith(ZIP) else path
        if not place.startswith(HUB) and (place == path or "://" in place):
            raise DataError("it is a URL")
        with xopen(path, "rb") as file:
            return file.read()
    if is_stream(Path(path)):  # it may never end
        raise DataError("it is a device or a pipe")
    return Path(path).read_bytes()


def decode_image(value: Mapping | PIL.Image.Image | None, feature: datasets.Image) -> PIL.Image.Image | None:
    """Decodes an image that is stored as `{"bytes", "path"}`.

    The pixels are those of the datasets library.

    Raises:
        DataError: no regular file.
        Exception: an error of Pillow for a damaged or missing file, another format, or too many pixels.
    """
    if not isinstance(value, Mapping):
        return value
    content = value["bytes"]
    if content is None:
        content = read_image(value["path"])
    with PIL.Image.open(io.BytesIO(content), formats=FORMATS) as image:
        image.load()
        try:
            turned = PIL.ImageOps.exif_transpose(image)
        except Exception:  # Pillow's parser of EXIF raises anything on damaged data; the pixels have been read
            turned = image.copy()
    return turned.convert(feature.mode) if feature.mode and feature.mode != turned.mode else turned

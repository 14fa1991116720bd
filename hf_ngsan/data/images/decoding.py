"""Images of datasets, decoded as `models.images` decodes files: of raster formats, bounded, and upright."""

import contextlib
import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import PIL.Image
from datasets.utils.file_utils import xopen
from PIL import ExifTags, ImageOps, UnidentifiedImageError

from ...ground.files import is_stream
from ..errors import DataError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""By Pillow's names. Other formats of Pillow start programs (EPS) or are rarely looked at by anybody."""


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


def decode_image(value: Mapping | PIL.Image.Image | None, feature: datasets.Image) -> PIL.Image.Image | None:
    """Decodes an image that is stored as `{"bytes", "path"}`.

    The result is what the datasets library would make of it, except that damaged EXIF data are left out.

    Raises:
        DataError: no regular file, one of another format, or more pixels than `PIL.Image.MAX_IMAGE_PIXELS`.
        Exception: whatever Pillow says of a file that is damaged or not there.
    """
    if not isinstance(value, Mapping):
        return value
    content = value["bytes"]
    if content is None:
        if is_stream(Path(value["path"])):  # which need not end
            raise DataError("it is a device or a pipe")
        with xopen(value["path"], "rb") as file:
            content = file.read()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)  # an error, below
            image = PIL.Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        raise DataError(f"no image of a format that is read: {', '.join(FORMATS)}") from None
    limit = PIL.Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise DataError(f"{image.width} x {image.height} pixels are more than PIL.Image.MAX_IMAGE_PIXELS = {limit}")
    image.load()
    turned = upright(image)
    return turned.convert(feature.mode) if feature.mode and feature.mode != turned.mode else turned


def upright(image: PIL.Image.Image) -> PIL.Image.Image:
    """Returns an image turned as its EXIF data say; of damaged ones the image as it is stored, without them."""
    with contextlib.suppress(Exception):  # Pillow's parser raises anything
        if image.getexif().get(ExifTags.Base.Orientation) is None:
            return image
        return ImageOps.exif_transpose(image)
    stored = image.copy()
    for entry in ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"):
        stored.info.pop(entry, None)
    return stored

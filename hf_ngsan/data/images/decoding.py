"""Images of datasets, decoded as `models.images` decodes files: of raster formats, bounded, and upright.

They keep the mode that they are stored in, as with the datasets library; image processors make them RGB.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import PIL.Image
from datasets.utils.file_utils import xopen

from ...ground.files import is_stream
from ..errors import DataError, as_data_error


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

    The pixels are those of the datasets library, but EXIF data, which have turned the image, are left out.

    Raises:
        DataError: no regular file, one of another format, or one that would cost too much to decode.
        Exception: whatever Pillow says of a file that is damaged or not there.
    """
    from ...models.images import open_image, upright  # with torch, which most datasets do without

    if not isinstance(value, Mapping):
        return value
    content = value["bytes"]
    if content is None:
        if is_stream(Path(value["path"])):  # which need not end
            raise DataError("it is a device or a pipe")
        with xopen(value["path"], "rb") as file:
            content = file.read()
    with as_data_error():
        image = open_image(content, "the file")
    image.load()
    turned = upright(image)
    return turned.convert(feature.mode) if feature.mode and feature.mode != turned.mode else turned

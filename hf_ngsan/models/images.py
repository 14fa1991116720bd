"""Reads images of any kind as upright RGB images, with Pillow and NumPy only."""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
"""Supported file formats (Pillow's names). Others start programs (EPS) or have less tested decoders."""
RANGE_TOLERANCE = 1e-3  # for floats outside [0, 1]: resizing overshoots, and half precision rounds
SCALES = {"I": (255, 65535), "F": (1, 255)}  # white in images of 32 bits: the first number that no value exceeds


class ImageError(ValueError):
    """Raised for an input that cannot be read as an image; the message names it."""


def load_image(source: Any, name: str = "the image", least_side: int | None = None, copies: bool = True) -> Image.Image:
    """Reads an image: upright, the first frame of an animation, transparent pixels over white, 16 bits scaled to 8.

    Args:
        source: path, `bytes` of a file, a file open for reading bytes, `PIL.Image.Image`, an image of `datasets`
            (`{"bytes": …, "path": …}`), or an array or tensor `(height, width)`, `(height, width, C)` or `(C, height,
            width)` of 1, 3 or 4 channels: integers from 0 to 255, uint16, booleans, or floats within [0, 1]. An
            `http(s)://` or `data:` URL is read by transformers, but a `Path` is never a URL.
        name: name of the image in errors; its path is added.
        least_side: allows decoding a JPEG file at 1/2, 1/4 or 1/8 of its size, several times as fast, as long as both
            sides keep twice as many pixels as this. `info["full size"]` of the result is then the original size.
        copies: `False` may return the source image of Pillow, which must then not be changed.

    Returns an image of mode RGB. Raises an [`ImageError`] for an unreadable image, for more pixels than Pillow decodes
    (`PIL.Image.MAX_IMAGE_PIXELS`) and for values out of range.
    """
    place = source.get("path") if isinstance(source, Mapping) else source
    if isinstance(place, str | os.PathLike):
        name = f"{name} ({place!s:.200})"
    try:
        if isinstance(source, Image.Image):
            result = upright_rgb(source)
            return result.copy() if copies and result is source else result
        with opened(source) as image:
            size = image.size
            if least_side is not None:
                image.draft(None, (2 * least_side, 2 * least_side))  # has an effect for JPEG only
            result = upright_rgb(image)
            if result is image and least_side is None:
                result = result.copy()  # without the file's format and name
            if image.size != size:
                result.info["full size"] = size if result.size == image.size else size[::-1]  # rotated by EXIF
            return result
    except Exception as error:  # Pillow's plugins raise anything on damaged data
        fault = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
        if isinstance(error, UnidentifiedImageError):  # its message has a memory address
            fault = f"it is not an image of {', '.join(IMAGE_FORMATS)}, or is damaged"
        raise ImageError(f"{name[:1].upper()}{name[1:]} cannot be read: {fault.rstrip('.')}.") from error


def opened(source: Any) -> Image.Image:
    """Opens an image without decoding it."""
    if isinstance(source, Mapping):  # from `datasets`, where `path` may be an untrusted URL
        source = Path(source["path"]) if source.get("bytes") is None else source["bytes"]
    if isinstance(source, str) and source.startswith(("http://", "https://", "data:")):
        from transformers import image_utils  # seconds, which no file needs

        return image_utils.load_image(source, timeout=60)
    if isinstance(source, np.ndarray) or hasattr(source, "is_floating_point"):  # a tensor, without torch
        return image_of_array(source)
    is_content = isinstance(source, bytes | bytearray | memoryview)
    return Image.open(io.BytesIO(source) if is_content else source, formats=IMAGE_FORMATS)


def upright_rgb(image: Image.Image) -> Image.Image:
    """Returns an image of any mode, or itself, turned as its EXIF data say; damaged ones are ignored."""
    image.load()
    with suppress(Exception):  # Pillow's parser of EXIF raises anything; the pixels have been read
        if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
            image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):  # 16 or 32 bits, which Pillow would clip
        array = np.asarray(image)
        scales = SCALES.get(image.mode, (65535,))
        image = image_of_array(array, next((top for top in scales if array.max() <= top + RANGE_TOLERANCE), scales[-1]))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == "RGB" else image.convert("RGB")


def image_of_array(array: Any, white: int | None = None) -> Image.Image:
    """Converts an array or tensor to an image with 8 bits per channel; `white` defaults to the maximum of the type."""
    if not isinstance(array, np.ndarray):
        array = (array.float() if array.is_floating_point() else array).detach().cpu().numpy()
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[-1] not in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    if array.dtype != np.uint8:
        white = white or (1 if array.dtype.kind in "bf" else 65535 if array.dtype.str[1:] == "u2" else 255)
        low, high = array.min(), array.max()
        if not (low >= -RANGE_TOLERANCE and high <= white + RANGE_TOLERANCE):
            raise ValueError(f"its pixels range from {low} to {high}; {array.dtype} pixels must be from 0 to {white}")
        array = (array.clip(0, white) * (255 / white)).round().astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array))


def load_images(images: Any, name: str = "the image", **options: Any) -> list[Image.Image]:
    """Reads one image or several: a list, a nested list, a batch `(B, …)` of arrays, an iterator; see `load_image`."""
    is_one = isinstance(images, str | bytes | bytearray | memoryview) or hasattr(images, "read")
    is_batch = isinstance(images, Sequence | Iterator) or getattr(images, "ndim", 0) == 4
    if is_one or not is_batch:
        return [load_image(images, name, **options)]
    numbered = ((source, f"image {index} of the batch") for index, source in enumerate(images))
    return [image for source, name in numbered for image in load_images(source, name, **options)]


def least_side_of(image_processor: Any) -> int | None:
    """Returns the longest side of an image processor's outputs, or `None` if it may need any size."""
    size: Any = getattr(image_processor, "size", None) or {}
    sides = [size.get("height"), size.get("width")]
    return max(sides) if getattr(image_processor, "do_resize", False) and all(sides) else None

"""Reads images of any kind - file, URL, array, any mode of Pillow - as upright RGB images.

```python
load_image("photo.jpg")
load_image(np.zeros((64, 48, 3), np.uint8))
```

Files may come from strangers: formats, pixels, bytes and downloads are bounded before anything is decoded.
"""

import base64
import binascii
import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from .downloads import DownloadError, download

if TYPE_CHECKING:
    import torch

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats of files, by Pillow's names. Others start programs (EPS), or their decoders get little scrutiny."""

MIN_SIDE = 8
"""Smallest side in pixels: larger than a number of channels, so that the layout of an array is unambiguous."""

MAX_ASPECT_RATIO = 100
"""Largest ratio of the long side to the short side."""

MAX_READS = 8
"""Times that all bytes of a file may be read: the entries of a TIFF file can all point to the same megabytes."""
MAX_EXIF_BYTES = 2**16
"""Largest EXIF data that are parsed, the maximum of JPEG; their entries can point to the same bytes, too."""
MAX_SCANS = 100
"""Scans of a JPEG file. Progressive files have about ten; each costs a pass over all pixels, even with few bytes."""
START_OF_SCAN = b"\xff\xda"

RANGE_TOLERANCE = 1e-3
"""Tolerance of floats outside [0, 1]: resizing overshoots, and half precision rounds."""
ALPHA_MODES = {"P", "PA", "LA", "La", "RGBA", "RGBa"}  # a palette may hold transparent colours
WHITE = (255, 255, 255, 255)
TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transposition that turns an image upright, by its EXIF orientation."""

FULL_SIZE = "hf_ngsan full size"
"""Entry of an image's `info`: its size before it was decoded at a smaller scale."""
EXIF_ENTRIES = ("exif", "Raw profile type exif")
XMP_ENTRIES = ("xmp", "XML:com.adobe.xmp")
"""Entries of an image's `info` in which Pillow finds the orientation."""


class ImageError(ValueError):
    """Something that cannot be read as an image; the message is one sentence that names it."""


def load_image(source: Any, name: str = "the image", least_side: int | None = None) -> Image.Image:
    """Reads an image.

    - Files are BMP, GIF, JPEG, PNG, PPM (with PGM and PBM), TIFF or WebP, whatever their names end in.
    - EXIF rotation is applied, unless the EXIF data are damaged; of an animation the first frame is taken.
    - Transparent pixels are laid over white.
    - 16 bits are scaled to 8, not clipped.
    - Grey, 1-bit, palette, CMYK and other modes become RGB.

    Args:
        source: path, `http(s)://`, `file://` or `data:` URL, bytes of a file, a file open for reading bytes,
            `PIL.Image.Image`, an image of `datasets` (`{"bytes": …, "path": …}`), or an array or tensor `(height,
            width)`, `(height, width, C)` or `(C, height, width)` of 1, 3 or 4 channels: integers from 0 to 255, uint16,
            booleans, or floats within [0, 1]. Floats of Pillow (mode F) go from 0 to 255 where any is above 1. A
            mapping, which data of others may hold, names files by their paths and not by `file://` URLs; a `Path` is
            never a URL.
        name: name of the image in errors; its path is added.
        least_side: a JPEG file may be decoded at a half, a quarter or an eighth of its size, several times as fast, as
            long as both sides keep twice so many pixels. [`full_size`] then returns the size of the file.

    Returns:
        A `PIL.Image.Image` of mode RGB, independent of the source.

    Raises:
        ImageError: missing, damaged or no image at all; shorter than 8 pixels on a side or more than 100 times as long
            as wide; more pixels than `PIL.Image.MAX_IMAGE_PIXELS`; a download beyond its
            [`~downloads.DownloadLimits`]; an array of another shape, type or range.
    """
    if isinstance(source, Mapping):
        content, path = source.get("bytes"), source.get("path")
        if content is not None:
            source, name = content, with_place(name, path)
        elif path is not None:
            refuse_file_url(path, name)
            source = path
        else:
            raise ImageError(f"{titled(name)} is a mapping with {sorted(source)}; it needs bytes or a path.")
    if isinstance(source, np.ndarray) or is_tensor(source):
        return image_from_array(source, name)
    if isinstance(source, Image.Image):
        return decoded(source, name)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return image_from_bytes(bytes(source), name, least_side)
    if isinstance(source, (str, os.PathLike)):
        place = os.fsdecode(source)
        read = content_of_place if isinstance(source, str) else content_of_file
        return image_from_bytes(read(place, with_place(name, place)), with_place(name, place), least_side)
    if hasattr(source, "read"):
        return image_from_bytes(content_of_open_file(source, name), name, least_side)
    raise ImageError(
        f"{titled(name)} is of type {type(source).__name__}; give a path, a URL, bytes, an open file, an image of "
        "Pillow, an array or a tensor."
    )


def load_images(images: Any) -> list[Image.Image]:
    """Reads one image or several: a list, a nested list, a batch `(B, …)` of arrays, any iterable; see `load_image`."""
    sources = image_list(images)
    if len(sources) == 1:
        return [load_image(sources[0])]
    return [load_image(source, f"image {index} of the batch") for index, source in enumerate(sources)]


def image_list(images: Any) -> list:
    """Lists images, read or not; a lone image is a list of one."""
    if isinstance(images, np.ndarray) or is_tensor(images):
        return list(images) if images.ndim == 4 else [images]
    if is_one_image(images):
        return [images]
    found = []
    for entry in images:
        found += image_list(entry) if isinstance(entry, (list, tuple)) else [entry]
    return found


def is_one_image(source: Any) -> bool:
    """Returns whether this is one image, or at least no collection; the shape of an array decides."""
    lone = (str, bytes, bytearray, memoryview, os.PathLike, Mapping, Image.Image)
    return isinstance(source, lone) or hasattr(source, "read") or not isinstance(source, Iterable)


def thumbnail(image: Image.Image, longest_side: int) -> Image.Image:
    """Returns the image, or a copy that is reduced to a longest side."""
    if max(image.size) <= longest_side:
        return image
    scale = longest_side / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=2.0)


def titled(name: str) -> str:
    return name[:1].upper() + name[1:]


def with_place(name: str, place: str | os.PathLike | None) -> str:
    """Adds a path or URL to a name; a long one is cut."""
    place = "" if place is None else str(place)
    return f"{name} ({place if len(place) <= 200 else place[:200] + '…'})" if place else name


def refuse_file_url(source: Any, name: str) -> None:
    """Raises an ImageError for a `file://` URL in data, where a stranger may have put it."""
    if isinstance(source, str) and source[:7].lower() == "file://":
        raise ImageError(
            f"{titled(with_place(name, source))} is a file URL within a mapping, which is not read; give the path, or "
            "the URL itself."
        )


def content_of_place(place: str, name: str) -> bytes:
    """Returns the bytes of a path or a URL."""
    if not place:
        raise ImageError(f"{titled(name)} is an empty string; give a path or a URL.")
    scheme = place.partition(":")[0].lower()
    if scheme in ("http", "https"):
        with errors_named(name, "could not be downloaded", (DownloadError,)):
            return download(place)
    if scheme == "data":
        return content_of_data_url(place, name)
    if scheme == "file" and place[5:].startswith("//"):
        place = url2pathname(urlsplit(place).path)
    return content_of_file(place, name)


def content_of_open_file(file: Any, name: str) -> bytes:
    with errors_named(name, "cannot be read"):  # a closed file, a broken connection
        if file.seekable():
            file.seek(0)
        content = file.read()
    if not isinstance(content, bytes):
        raise ImageError(f'{titled(name)} is a file open for text; open it with mode "rb".')
    return content


def content_of_file(path: str, name: str) -> bytes:
    with errors_named(name, "cannot be read", (OSError, ValueError)):
        file = Path(path)
        if file.is_dir():
            raise ImageError(f"{titled(name)} is a folder, not an image file.")
        if not file.exists():
            raise ImageError(f"{titled(name)} does not exist.")
        if not file.is_file():
            raise ImageError(f"{titled(name)} is not a regular file.")
        return file.read_bytes()


def content_of_data_url(url: str, name: str) -> bytes:
    header, _, data = url.partition(",")
    try:
        if not header.endswith(";base64"):
            raise ValueError
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ImageError(f"{titled(name)} is a data URL that does not hold an image in base64.") from None


@contextlib.contextmanager
def errors_named(name: str, fault: str, kinds: tuple[type[Exception], ...] = (Exception,)) -> Iterator[None]:
    """Raises errors of some kinds inside the `with` block as ImageErrors, which name the image and the fault."""
    try:
        yield
    except ImageError:
        raise
    except kinds as error:
        raise ImageError(f"{titled(name)} {fault}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Returns the first sentence of an error, with a full stop."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text.splitlines()[0].split(". ")[0].rstrip(".") + "."


class FileBytes(io.BytesIO):
    """The bytes of a file; reading them more than `MAX_READS` times is an error."""

    def __init__(self, data: bytes):
        super().__init__(data)
        self.left = MAX_READS * len(data) + 2**20

    def read(self, size: int | None = -1) -> bytes:
        part = super().read(size)
        self.left -= len(part)
        if self.left < 0:
            raise ImageError("its parts overlap")
        return part


def image_from_bytes(data: bytes, name: str, least_side: int | None) -> Image.Image:
    with open_image(data, name) as image:
        return decoded_at_scale(image, name, least_side)


def decoded_at_scale(image: Image.Image, name: str, least_side: int | None) -> Image.Image:
    """Decodes an image of [`open_image`], which changes, at a smaller scale if that is allowed; see [`load_image`]."""
    size = image.size
    if least_side is not None:
        image.draft(None, (2 * least_side, 2 * least_side))  # of JPEG alone; other formats know no smaller scales
    found = decoded(image, name)
    if image.size != size:
        found.info[FULL_SIZE] = size if found.size == image.size else size[::-1]  # turned upright
    return found


def full_size(image: Image.Image) -> tuple[int, int]:
    """Returns width and height of an image from [`load_image`] before it was decoded at a smaller scale."""
    return image.info.get(FULL_SIZE, image.size)


def least_side_of(image_processor: Any) -> int | None:
    """Returns the longest side that an image processor gives images, or None if it may need any size.

    Images may be decoded at a smaller scale for it; see `least_side` of [`load_image`].
    """
    size: Any = getattr(image_processor, "size", None)
    if not getattr(image_processor, "do_resize", False) or not hasattr(size, "get"):
        return None
    height, width = size.get("height"), size.get("width")
    return max(height, width) if height and width else None


def open_image(data: bytes, name: str) -> Image.Image:
    """Opens an image file and reads its size, without decoding it.

    Args:
        data: bytes of the file.
        name: name of the image in errors.

    Raises:
        ImageError: no image, another format, or an image that would cost too much to decode.
    """
    if not data:
        raise ImageError(f"{titled(name)} is empty: it has 0 bytes.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # an error, below
            image = Image.open(FileBytes(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise ImageError(f"{titled(name)} is not an image of a format that is read ({', '.join(FORMATS)}).") from None
    except Image.DecompressionBombError as error:
        raise ImageError(f"{titled(name)} is too large to be decoded safely: {reason(error)}") from None
    except Exception as error:  # headers of damaged files make Pillow's plugins raise anything
        raise ImageError(f"{titled(name)} is damaged or cut off: {reason(error)}") from None
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise ImageError(
            f"{titled(name)} is too large to be decoded safely: {image.width} x {image.height} pixels are more "
            f"than PIL.Image.MAX_IMAGE_PIXELS = {limit}."
        )
    if image.format in ("JPEG", "MPO") and data.count(START_OF_SCAN) > MAX_SCANS:
        raise ImageError(
            f"{titled(name)} is a JPEG file with more than {MAX_SCANS} scans; save it again as a usual one."
        )
    return image


def decoded(image: Image.Image, name: str) -> Image.Image:
    check_size(image.width, image.height, name)
    with errors_named(name, "is damaged or cut off"):  # Pillow's plugins raise anything on damaged data
        image.load()
        return to_rgb(upright(image), name)


def upright(image: Image.Image) -> Image.Image:
    """Returns a copy that is turned upright by its EXIF data, and without them; damaged ones are ignored."""
    orientation: object = None
    with contextlib.suppress(Exception):  # Pillow's parser raises anything
        if all(len(image.info.get(entry, b"")) <= MAX_EXIF_BYTES for entry in EXIF_ENTRIES):
            orientation = image.getexif().get(ExifTags.Base.Orientation)
    method = TRANSPOSITIONS.get(orientation) if isinstance(orientation, int) else None
    turned = image.copy() if method is None else image.transpose(method)
    for entry in (*EXIF_ENTRIES, *XMP_ENTRIES):
        turned.info.pop(entry, None)
    return turned


def check_size(width: int, height: int, name: str) -> None:
    short, long = sorted((width, height))
    if short < MIN_SIDE:
        raise ImageError(
            f"{titled(name)} is too small: it has {width} x {height} pixels, and each side must have at least "
            f"{MIN_SIDE}."
        )
    if long > MAX_ASPECT_RATIO * short:
        raise ImageError(
            f"{titled(name)} has {width} x {height} pixels: the long side may be at most {MAX_ASPECT_RATIO} times the "
            "short one."
        )


def to_rgb(image: Image.Image, name: str) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):
        deep = array_of_deep_image(image, name)
        rgb = image_from_array(deep, name)
        if "transparency" in image.info:  # a grey that stands for no colour
            rgb.paste(WHITE[:3], mask=Image.fromarray(deep == image.info["transparency"]))
        return rgb
    if image.mode == "La":  # Pillow converts it to no other mode
        image = image.convert("LA")
    if image.mode in ALPHA_MODES or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image)
    return image if image.mode == "RGB" else image.convert("RGB")


def array_of_deep_image(image: Image.Image, name: str) -> np.ndarray:
    """Reads an image of 16 or 32 bits: mode I has 16 bits if a value needs more than 8, mode F has 0 to 255."""
    array = np.asarray(image)
    if image.mode == "F" and array.max() > 1 + RANGE_TOLERANCE:
        if array.min() < 0 or array.max() > 255:
            raise ImageError(
                f"{titled(name)} is of mode F, from {array.min():.4g} to {array.max():.4g}; its floats must lie within "
                "[0, 1] or [0, 255]."
            )
        return array / 255
    if image.mode == "I" and array.min() >= 0 and 255 < array.max() <= 65535:
        return array.astype(np.uint16)
    return array


def is_tensor(source: Any) -> "TypeGuard[torch.Tensor]":
    """Returns whether this is a tensor; torch, which takes seconds to import, is there already if it is one."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.Tensor)


def image_from_array(array: "np.ndarray | torch.Tensor", name: str) -> Image.Image:
    if not isinstance(array, np.ndarray):
        array = array.detach().cpu()
        array = (array.float() if array.is_floating_point() else array).numpy()
    shape = array.shape
    channels_last = array.ndim == 3 and shape[-1] in (1, 3, 4)
    channels_first = array.ndim == 3 and shape[0] in (1, 3, 4)
    if not (array.ndim == 2 or channels_last or channels_first):
        raise ImageError(
            f"{titled(name)} is an array of shape {tuple(shape)}; it must be (height, width), "
            "(height, width, channels) or (channels, height, width) with 1, 3 or 4 channels."
        )
    if channels_first and not channels_last:
        array = np.moveaxis(array, 0, -1)
    check_size(array.shape[1], array.shape[0], name)
    pixels = as_bytes(array, name)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    return to_rgb(Image.fromarray(np.ascontiguousarray(pixels)), name)


def as_bytes(array: np.ndarray, name: str) -> np.ndarray:
    """Turns pixel values of any type and byte order into uint8."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype == np.uint8:
        return array
    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    if array.dtype == np.uint16:
        return ((array.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if not np.issubdtype(array.dtype, np.integer) and not np.issubdtype(array.dtype, np.floating):
        raise ImageError(f"{titled(name)} is an array of {array.dtype}; pixels are integers or floats.")
    if not np.isfinite(array).all():
        raise ImageError(f"{titled(name)} is an array with NaN or infinite values.")
    low, high = array.min(), array.max()
    if np.issubdtype(array.dtype, np.integer):
        if low < 0 or high > 255:
            raise ImageError(
                f"{titled(name)} is an array of {array.dtype} from {low} to {high}; integers must lie within 0 and 255 "
                "(uint16: 0 and 65535)."
            )
        return array.astype(np.uint8)
    if low < -RANGE_TOLERANCE or high > 1 + RANGE_TOLERANCE:
        raise ImageError(
            f"{titled(name)} is an array of floats from {low:.4g} to {high:.4g}; floats must lie within [0, 1]: divide "
            "by 255, or give integers."
        )
    return (array.clip(0, 1) * 255).round().astype(np.uint8)


__all__ = ["ImageError", "decoded_at_scale", "full_size", "least_side_of", "load_image", "load_images"]

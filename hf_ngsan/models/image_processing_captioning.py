"""Converts images of any kind to upright RGB images, and these to the pixels of a vision encoder, with Pillow only."""

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from transformers import image_utils
from transformers.image_processing_backends import PilBackend
from transformers.image_processing_utils import BatchFeature
from transformers.image_transforms import get_size_with_aspect_ratio
from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD, PILImageResampling, SizeDict
from transformers.processing_utils import ImagesKwargs

IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
"""Supported file formats (Pillow's names). Others start programs (EPS) or have less tested decoders."""
RANGE_TOLERANCE = 1e-3  # for floats outside [0, 1]: resizing overshoots, and half precision rounds
SCALES = {"I": (255, 65535), "F": (1, 255)}  # white in images of 32 bits: the first number that no value exceeds


class ImageError(ValueError):
    """Raised for an input that cannot be read as an image; the message names it."""


def load_image(source: Any, name: str = "the image", least_side: int | None = None) -> Image.Image:
    """Reads an image: upright, the first frame of an animation, transparent pixels over white, 16 bits scaled to 8.

    Args:
        source: path, `bytes` of a file, a file open for reading bytes, `PIL.Image.Image`, an image of `datasets`
            (`{"bytes": …, "path": …}`), or an array or tensor `(height, width)`, `(height, width, C)` or `(C, height,
            width)` of 1, 3 or 4 channels: integers from 0 to 255, uint16, booleans, or floats within [0, 1]. An
            `http(s)://` or `data:` URL is read by transformers, but a `Path` is never a URL.
        name: name of the image in errors; its path is added.
        least_side: allows decoding a JPEG file at 1/2, 1/4 or 1/8 of its size, several times as fast, as long as both
            sides keep twice as many pixels as this. `info["full size"]` of the result is then the original size.

    Returns an image of mode RGB, independent of the source. Raises an [`ImageError`] for an unreadable image, for more
    pixels than Pillow decodes (`PIL.Image.MAX_IMAGE_PIXELS`) and for values out of range.
    """
    place = source.get("path") if isinstance(source, Mapping) else source
    if isinstance(place, str | os.PathLike):
        name = f"{name} ({place!s:.200})"
    try:
        if isinstance(source, Image.Image):
            return upright_rgb(source)
        with opened(source) as image:
            size = image.size
            if least_side is not None:
                image.draft(None, (2 * least_side, 2 * least_side))  # has an effect for JPEG only
            upright = upright_rgb(image)
            if image.size != size:
                upright.info["full size"] = size if upright.size == image.size else size[::-1]  # rotated by EXIF
            return upright
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
        return image_utils.load_image(source, timeout=60)
    if isinstance(source, np.ndarray) or hasattr(source, "is_floating_point"):  # a tensor, without torch
        return image_of_array(source)
    is_content = isinstance(source, bytes | bytearray | memoryview)
    return Image.open(io.BytesIO(source) if is_content else source, formats=IMAGE_FORMATS)


def upright_rgb(image: Image.Image) -> Image.Image:
    """Returns an RGB copy of an image of any mode, rotated by its EXIF data; damaged EXIF data are ignored."""
    image.load()
    try:
        image = ImageOps.exif_transpose(image)
    except Exception:  # Pillow's parser of EXIF raises anything; the pixels have been read
        image = image.copy()
    if image.mode.startswith(("I", "F")):  # 16 or 32 bits, which Pillow would clip
        array = np.asarray(image)
        scales = SCALES.get(image.mode, (65535,))
        image = image_of_array(array, next((to for to in scales if array.max() <= to + RANGE_TOLERANCE), scales[-1]))
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
            raise ValueError(f"its pixels go from {low} to {high}, but must lie within 0 and {white} ({array.dtype})")
        array = (array.clip(0, white) * (255 / white)).round().astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array))


def load_images(images: Any, name: str = "the image", least_side: int | None = None) -> list[Image.Image]:
    """Reads one image or several: a list, a nested list, a batch `(B, …)` of arrays, an iterator; see `load_image`."""
    is_one = isinstance(images, str | bytes | bytearray | memoryview) or hasattr(images, "read")
    is_batch = isinstance(images, Sequence | Iterator) or getattr(images, "ndim", 0) == 4
    if is_one or not is_batch:
        return [load_image(images, name, least_side)]
    numbered = ((source, f"image {index} of the batch") for index, source in enumerate(images))
    return [image for source, name in numbered for image in load_images(source, name, least_side)]


def least_side_of(image_processor: Any) -> int | None:
    """Returns the longest side of an image processor's outputs, or `None` if it may need any size."""
    size: Any = getattr(image_processor, "size", None) or {}
    sides = [size.get("height"), size.get("width")]
    return max(sides) if getattr(image_processor, "do_resize", False) and all(sides) else None


class CaptioningImageProcessorKwargs(ImagesKwargs, total=False):
    """Settings that transformers does not have; see [`CaptioningImageProcessor`]."""

    do_flip_channel_order: bool | None
    round_edges: bool | None
    size_divisor: int | None
    num_frames: int | None
    seconds_per_frame: float | None


class CaptioningImageProcessor(PilBackend):
    r"""Reads images with [`load_image`], and resizes, scales and normalizes them for a vision encoder.

    Args:
        size (`dict`, defaults to `{"height": 224, "width": 224}`): exact height and width; or `{"shortest_edge": s}`,
            optionally with the limit `"longest_edge"`, which keeps the aspect ratio.
        round_edges (`bool`, defaults to `False`): with both edges, whether to round height and width to the nearest
            pixel, as detectron2 does; transformers truncates them.
        size_divisor (`int`, *optional*): with both edges, height and width are then rounded down to multiples of this
            number, as needed by YOLOS for its patches.
        do_flip_channel_order (`bool`, defaults to `False`): whether to use the order blue, green, red, which
            `image_mean` and `image_std` must then follow.
        do_convert_rgb (`bool`, defaults to `True`): `False` keeps images as they are, with any number of channels.
        num_frames (`int`, *optional*): number of frames of a clip, from the centres of equal parts; 8 by default.
        seconds_per_frame (`float`, *optional*): length of these parts in seconds, instead of `num_frames`.
        kwargs: other settings of transformers' image processors: `resample` (bilinear), `do_center_crop` (`False`) and
            `crop_size`, `rescale_factor` (1/255), `image_mean`, `image_std` (ImageNet's), `pad_size` and so on.

    Returns:
        `BatchFeature` with `pixel_values` `(B, 3, height, width)` float32 and, only if an image was padded,
        `pixel_mask` `(B, height, width)` int64, 1 = image. Without `return_tensors`, these are lists of arrays.
    """

    valid_kwargs = CaptioningImageProcessorKwargs
    model_input_names = ["pixel_values", "pixel_mask"]

    size = {"height": 224, "width": 224}
    resample = PILImageResampling.BILINEAR
    image_mean = IMAGENET_DEFAULT_MEAN
    image_std = IMAGENET_DEFAULT_STD
    do_convert_rgb = do_resize = do_rescale = do_normalize = do_pad = True
    do_flip_channel_order = round_edges = False
    size_divisor = num_frames = seconds_per_frame = None

    def read_images(self, images: Any, draft: bool = False) -> list[Image.Image]:
        """Reads one image or several; `draft` decodes JPEG files no larger than needed, see [`load_image`]."""
        return load_images(images, least_side=least_side_of(self) if draft else None)

    def to_dict(self) -> dict:
        output = super().to_dict()
        if self._auto_class is None:
            output.pop("auto_map", None)  # from a checkpoint with code
        for name in ("num_frames", "seconds_per_frame", "size_divisor"):
            if output.get(name) is None:  # as in most image processors
                output.pop(name, None)
        return output

    def _prepare_image_like_inputs(self, images: Any, **settings: Any) -> list:  # type: ignore[override]
        if not settings["do_convert_rgb"]:
            return super()._prepare_image_like_inputs(images, **settings)
        return [np.moveaxis(np.asarray(image), -1, 0) for image in load_images(images)]

    def _preprocess(  # type: ignore[override]  # transformers passes every setting by name
        self, images: list[np.ndarray], return_tensors: str | None = None, **settings: Any
    ) -> BatchFeature:
        def with_statistics(values: np.ndarray) -> np.ndarray:
            if settings["do_rescale"]:
                values = self.rescale(values, settings["rescale_factor"])
            if settings["do_normalize"]:
                values = self.normalize(values, settings["image_mean"], settings["image_std"])
            return values.astype(np.float32, copy=False)

        pixels = []
        for image in images:
            if settings["do_resize"]:
                size = resized_size(image, settings["size"], settings["round_edges"], settings["size_divisor"] or 1)
                image = self.resize(image, size, settings["resample"])
            if settings["do_center_crop"]:
                image = self.center_crop(image, settings["crop_size"])
            if settings["do_flip_channel_order"]:
                image = image[::-1]
            pixels.append(looked_up(with_statistics, image) if image.dtype == np.uint8 else with_statistics(image))
        data: dict[str, Any] = {"pixel_values": pixels}
        pad_size = settings["pad_size"]
        if settings["do_pad"] and (pad_size is not None or len({image.shape for image in pixels}) > 1):
            data["pixel_values"], masks = self.pad(pixels, pad_size=pad_size, return_mask=True)
            if not all(mask.all() for mask in masks):
                data["pixel_mask"] = masks
        return BatchFeature(data, tensor_type=return_tensors)


def looked_up(function: Callable[[np.ndarray], np.ndarray], image: np.ndarray) -> np.ndarray:
    """Applies a function to all pixels of `(channels, height, width)`, computed once for each of the 256 values."""
    values = np.broadcast_to(np.arange(256, dtype=np.uint8), (len(image), 1, 256))
    table, pixels = function(values)[:, 0], np.empty(image.shape, np.float32)
    for channel_table, channel, out in zip(table, image, pixels, strict=True):
        np.take(channel_table, channel, out=out, mode="clip")  # this mode needs no buffer
    return pixels


def resized_size(image: np.ndarray, size: SizeDict, round_edges: bool | None, divisor: int) -> SizeDict:
    """Returns the height and width for an image `(channels, height, width)`; returns other kinds of sizes unchanged."""
    if not (size.shortest_edge and size.longest_edge):
        return size
    height, width = image.shape[-2:]
    if round_edges:
        scale = min(size.shortest_edge / min(height, width), size.longest_edge / max(height, width))
        resized = [int(height * scale + 0.5), int(width * scale + 0.5)]
    else:
        limited = get_size_with_aspect_ratio((height, width), size.shortest_edge, size.longest_edge)
        # It does not resize an image whose rounded shortest edge is right, however long the other edge is.
        resized = [min(side, size.longest_edge) for side in limited]
    resized = [max(divisor, side - side % divisor) for side in resized]
    return SizeDict(height=resized[0], width=resized[1])


__all__ = ["CaptioningImageProcessor", "ImageError", "least_side_of", "load_image", "load_images"]

"""Converts images of any kind to the pixels of a vision encoder, with Pillow only."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from PIL import Image
from transformers.image_processing_backends import PilBackend
from transformers.image_processing_utils import BatchFeature
from transformers.image_transforms import get_size_with_aspect_ratio
from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD, PILImageResampling, SizeDict
from transformers.processing_utils import ImagesKwargs

from .images import ImageError, least_side_of, load_image, load_images


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
        return load_images(images, copies=False)

    def resize(self, image: Any, size: SizeDict, resample: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        """Resizes an image of Pillow, which is quicker than an array, if the size is a height and a width."""
        if isinstance(image, Image.Image) and size.height and size.width and isinstance(resample, int):
            return image.resize((size.width, size.height), resample)
        return super().resize(image_array(image), size, resample, **kwargs)

    def _preprocess(  # type: ignore[override]  # transformers passes every setting by name
        self, images: list[Image.Image | np.ndarray], return_tensors: str | None = None, **settings: Any
    ) -> BatchFeature:
        def with_statistics(values: np.ndarray) -> np.ndarray:
            if settings["do_rescale"]:
                values = self.rescale(values, settings["rescale_factor"])
            if settings["do_normalize"]:
                values = self.normalize(values, settings["image_mean"], settings["image_std"])
            return values.astype(np.float32, copy=False)

        @cache
        def table(channels: int) -> np.ndarray:
            """Returns the results for the 256 values of a pixel, float32 `(channels, 256)`."""
            return with_statistics(np.broadcast_to(np.arange(256, dtype=np.uint8), (channels, 1, 256)))[:, 0]

        arrays = []
        for image in images:
            if settings["do_resize"]:
                image = self.resize(image, resized_size(image, settings), settings["resample"])
            image = image_array(image)
            if settings["do_center_crop"]:
                image = self.center_crop(image, settings["crop_size"])
            arrays.append(image[::-1] if settings["do_flip_channel_order"] else image)
        pixels: Any = [np.empty(image.shape, np.float32) for image in arrays]
        if len({image.shape for image in arrays}) == 1:
            pixels = np.empty((len(arrays), *arrays[0].shape), np.float32)  # where each is written, without a copy
        for image, out in zip(arrays, pixels, strict=True):
            if image.dtype != np.uint8:
                out[:] = with_statistics(image)
                continue
            for values, channel, out_channel in zip(table(len(image)), image, out, strict=True):
                np.take(values, channel, out=out_channel, mode="clip")  # the mode that needs no buffer
        data: dict[str, Any] = {"pixel_values": pixels if return_tensors else [*pixels]}
        pad_size = settings["pad_size"]
        if settings["do_pad"] and (pad_size is not None or isinstance(pixels, list)):
            data["pixel_values"], masks = self.pad([*pixels], pad_size=pad_size, return_mask=True)
            if not all(mask.all() for mask in masks):
                data["pixel_mask"] = masks
        return BatchFeature(data, tensor_type=return_tensors)


def image_array(image: Image.Image | np.ndarray) -> np.ndarray:
    """Returns an image as an array `(channels, height, width)`."""
    return np.moveaxis(np.asarray(image), -1, 0) if isinstance(image, Image.Image) else image


def resized_size(image: Image.Image | np.ndarray, settings: Mapping[str, Any]) -> SizeDict:
    """Returns the height and width to which an image, or an array `(channels, height, width)`, is resized, or another
    `size`."""
    size, divisor = settings["size"], settings["size_divisor"] or 1
    if not (size.shortest_edge and size.longest_edge):
        return size
    height, width = (image.height, image.width) if isinstance(image, Image.Image) else image.shape[-2:]
    if settings["round_edges"]:
        scale = min(size.shortest_edge / min(height, width), size.longest_edge / max(height, width))
        resized = [int(height * scale + 0.5), int(width * scale + 0.5)]
    else:
        limited = get_size_with_aspect_ratio((height, width), size.shortest_edge, size.longest_edge)
        # It does not resize an image whose rounded shortest edge is right, however long the other edge is.
        resized = [min(side, size.longest_edge) for side in limited]
    resized = [max(divisor, side - side % divisor) for side in resized]
    return SizeDict(height=resized[0], width=resized[1])


__all__ = ["CaptioningImageProcessor", "ImageError", "least_side_of", "load_image", "load_images"]

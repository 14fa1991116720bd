"""Image processor of the captioners: images of any kind to normalized pixels, with Pillow alone."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from transformers.image_processing_backends import PilBackend
from transformers.image_processing_utils import BatchFeature
from transformers.image_transforms import flip_channel_order, get_size_with_aspect_ratio
from transformers.image_utils import (
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    ChannelDimension,
    PILImageResampling,
    SizeDict,
)
from transformers.processing_utils import ImagesKwargs

from .configuration_hub import HubProcessorMixin
from .images import load_images

CONVNEXT_UNCUT = 384  # a ConvNextImageProcessor cuts images only to a smaller shortest edge


class CaptioningImageProcessorKwargs(ImagesKwargs, total=False):
    """Settings that transformers does not know; see [`CaptioningImageProcessor`]."""

    do_flip_channel_order: bool | None
    round_edges: bool | None


class CaptioningImageProcessor(HubProcessorMixin, PilBackend):
    r"""Reads, resizes, scales and normalizes images for a vision encoder.

    Takes whatever [`images.load_image`] reads, one or many; all become RGB of 8 bits first, so that the settings mean
    the same for every kind.

    Args:
        size (`dict`, defaults to `{"height": 224, "width": 224}`): exact height and width; or `{"shortest_edge": s}`,
            with `"longest_edge"` as its limit, which keep the aspect ratio.
        resample (`PILImageResampling`, defaults to `BILINEAR`).
        round_edges (`bool`, defaults to `False`): with both edges given, height and width are rounded to the nearest
            pixel, as detectron2 does; transformers cuts their fractions off.
        do_center_crop (`bool`, defaults to `False`), crop_size (`dict`): cut `crop_size` from the middle after
            resizing.
        do_rescale (`bool`, defaults to `True`), rescale_factor (`float`, defaults to 1/255).
        do_flip_channel_order (`bool`, defaults to `False`): blue, green, red; `image_mean` and `image_std` are then
            in that order too.
        do_normalize (`bool`, defaults to `True`), image_mean, image_std (`list[float]`, default to ImageNet's).
        do_pad (`bool`, defaults to `True`): fill images of unequal size with 0 on the right and below, up to the
            largest of the batch or to `pad_size`.
        do_convert_rgb (`bool`, defaults to `True`): False takes images of Pillow, arrays and tensors as they are, with
            any number of channels.

    Returns:
        `BatchFeature` with `pixel_values` `(B, 3, height, width)` float32 and, only where something was padded,
        `pixel_mask` `(B, height, width)` int64, 1 = image. Lists of such arrays without `return_tensors`.

    Raises:
        ImageError: no image; the message names it. It is a `ValueError`.
    """

    valid_kwargs = CaptioningImageProcessorKwargs
    model_input_names = ["pixel_values", "pixel_mask"]

    size = {"height": 224, "width": 224}
    resample = PILImageResampling.BILINEAR
    image_mean = IMAGENET_DEFAULT_MEAN
    image_std = IMAGENET_DEFAULT_STD
    do_convert_rgb = True
    do_resize = True
    do_rescale = True
    do_normalize = True
    do_pad = True
    do_flip_channel_order = False
    round_edges = False

    def to_dict(self) -> dict:
        output = super().to_dict()
        if self._auto_class is None:
            output.pop("auto_map", None)  # of a checkpoint with code
        return output

    def _prepare_image_like_inputs(
        self, images: Any, *args: Any, do_convert_rgb: bool | None = None, **kwargs: Any
    ) -> list:
        if not do_convert_rgb:
            return super()._prepare_image_like_inputs(images, *args, do_convert_rgb=False, **kwargs)
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
                size = resized_size(image, settings["size"], settings["round_edges"])
                image = self.resize(image, size, settings["resample"])
            if settings["do_center_crop"]:
                image = self.center_crop(image, settings["crop_size"])
            if settings["do_flip_channel_order"]:
                image = flip_channel_order(image, input_data_format=ChannelDimension.FIRST)
            pixels.append(looked_up(with_statistics, image) if image.dtype == np.uint8 else with_statistics(image))
        data: dict[str, Any] = {"pixel_values": pixels}
        pad_size = settings["pad_size"]
        if settings["do_pad"] and (pad_size is not None or len({image.shape for image in pixels}) > 1):
            data["pixel_values"], masks = self.pad(pixels, pad_size=pad_size, return_mask=True)
            if not all(mask.all() for mask in masks):
                data["pixel_mask"] = masks
        return BatchFeature(data, tensor_type=return_tensors)


def looked_up(function: Callable[[np.ndarray], np.ndarray], image: np.ndarray) -> np.ndarray:
    """Returns a function of each pixel of `(channels, height, width)`, computed once for each of the 256 values."""
    values = np.broadcast_to(np.arange(256, dtype=np.uint8), (len(image), 1, 256))
    table, pixels = function(values)[:, 0], np.empty(image.shape, np.float32)
    for of_channel, channel, out in zip(table, image, pixels, strict=True):
        np.take(of_channel, channel, out=out, mode="clip")  # the mode that needs no buffer
    return pixels


def resized_size(image: np.ndarray, size: SizeDict, round_edges: bool | None) -> SizeDict:
    """Returns the height and width to which an image `(channels, height, width)` is resized, or another `size`."""
    if not (size.shortest_edge and size.longest_edge):
        return size
    height, width = image.shape[-2:]
    if round_edges:
        scale = min(size.shortest_edge / min(height, width), size.longest_edge / max(height, width))
        resized = [int(height * scale + 0.5), int(width * scale + 0.5)]
    else:
        limited = get_size_with_aspect_ratio((height, width), size.shortest_edge, size.longest_edge)
        # It leaves an image alone whose shortest edge is right when rounded, however long the other edge is.
        resized = [min(side, size.longest_edge) for side in limited]
    return SizeDict(height=max(1, resized[0]), width=max(1, resized[1]))


def check_whole_images(image_processor: Any, changes: Mapping | None = None) -> None:
    """Raises a ValueError if an image processor, with changed settings if any, cuts something off its images.

    Boxes and attention maps are shares of the whole image; of a cut one they would silently show other places.
    """
    names = ("do_center_crop", "do_crop_margin", "crop_pct", "size")
    settings = {name: (changes or {}).get(name, getattr(image_processor, name, None)) for name in names}
    size = settings["size"]
    shortest_edge = size if isinstance(size, int) else size and size.get("shortest_edge")
    cuts_share = settings["crop_pct"] and shortest_edge and shortest_edge < CONVNEXT_UNCUT
    if settings["do_center_crop"] or settings["do_crop_margin"] or cuts_share:
        raise ValueError(
            "The image processor cuts images, but boxes and attention maps are shares of the whole image; use a "
            "CaptioningImageProcessor whose size is the height and width of the images."
        )


__all__ = ["CaptioningImageProcessor", "check_whole_images"]

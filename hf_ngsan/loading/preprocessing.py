"""The image processor of a trained backbone or detection model, changed so that it crops nothing.

```python
load_image_processor("microsoft/resnet-50", "grid")  # a CaptioningImageProcessor of 224 x 224 pixels
```

Regions and cells refer to the whole image; the usual crop of a classifier, or of CLIP, would move them. The whole image
is resized to the square that would be cropped instead, whatever its shape.
"""

import logging
import os

from transformers.image_processing_base import ImageProcessingMixin

from ..models.backbone_sources import preprocessing_of_variant
from ..models.image_processing_captioning import CaptioningImageProcessor
from ..models.pretrained_weights import is_packaged
from ..models.processing_captioning import check_whole_images

logger = logging.getLogger(__name__)

SAME_IN_EVERY_PROCESSOR = ("do_normalize", "do_rescale", "image_mean", "image_std", "resample", "rescale_factor")


def load_image_processor(
    source: str | os.PathLike,
    kind: str | None,
    name: str | None = None,
    image_size: int | None = None,
    own_size: int | None = None,
) -> CaptioningImageProcessor:
    """Returns the preprocessing that the folder of a trained model describes, for whole images.

    Args:
        source: folder or Hub name of a backbone, detection model or vision encoder, or name of a packaged backbone.
        kind: `kind` of the [`VisionConfig`] around it, `"grid"` or `"regions"`.
        name: name of the model in messages; `source` if `None`.
        image_size: height and width in pixels, in place of the described size.
        own_size: height and width that a backbone was made for, where the folder describes no preprocessing.

    Raises:
        ValueError: it crops images, has no usable size, or is unknown for a detection model. A backbone of
            unknown preprocessing gets ImageNet's normalization.
    """
    name = name or str(source)
    try:
        if is_packaged(source):
            settings = CaptioningImageProcessor(**preprocessing_of_variant(str(source))).to_dict()
        else:
            settings, _ = ImageProcessingMixin.get_image_processor_dict(source)
    except OSError as error:
        if kind == "regions":
            raise ValueError(
                f"{name} has no preprocessor_config.json, which says how large the images of a detection model are; "
                "add the one of the original model."
            ) from error
        settings = CaptioningImageProcessor().to_dict()
        image_size = image_size or own_size or settings["size"]["height"]
        logger.warning(
            "%s has no preprocessor_config.json; its images become %d x %d and are normalized as ImageNet's.",
            name,
            image_size,
            image_size,
        )
    if image_size is not None:
        settings |= {"size": {"height": image_size, "width": image_size}, "do_center_crop": False}
    if settings.get("image_processor_type", "").startswith("CaptioningImageProcessor"):
        return of_whole_images(name, CaptioningImageProcessor.from_dict(settings))
    chosen = {key: settings[key] for key in SAME_IN_EVERY_PROCESSOR if settings.get(key) is not None}
    return CaptioningImageProcessor(size=size_without_cropping(name, settings), **chosen)


def of_whole_images(name: str, image_processor: CaptioningImageProcessor) -> CaptioningImageProcessor:
    """Returns an image processor; raises a ValueError if it cuts something from images."""
    try:
        check_whole_images(image_processor)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return image_processor


def size_without_cropping(name: str, settings: dict) -> dict:
    """Returns height and width, or shortest and longest edge, of images that are not cropped.

    The square that a classifier crops from the middle, or its shortest edge alone, become height and width.
    """
    size = settings.get("size")
    if settings.get("do_center_crop") and settings.get("crop_size"):
        size = settings["crop_size"]
    if isinstance(size, int):
        size = {"shortest_edge": size}
    if isinstance(size, dict):
        if size.get("height") and size.get("width"):
            return {"height": size["height"], "width": size["width"]}
        if size.get("shortest_edge") and size.get("longest_edge"):
            return {"shortest_edge": size["shortest_edge"], "longest_edge": size["longest_edge"]}
        if size.get("shortest_edge"):
            return {"height": size["shortest_edge"], "width": size["shortest_edge"]}
    raise ValueError(
        f"{name}: size in preprocessor_config.json is {size!r}; it must name height and width, or shortest_edge."
    )

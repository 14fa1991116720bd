"""Random changes of training images that leave their captions true: crops, mirroring, light changes of colour.

```python
augment = ImageAugmentation(AugmentationSettings(smallest_crop=0.6, flip=0.5), seed=0)
row = augment(rows[0], epoch=3)  # boxes and captions fit the changed image
```
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance

from ..data.sampler import generator_of
from ..data.saved import FeatureCopies
from ..models.image_processing_captioning import load_image
from ..training.config import ConfigError, setting


@dataclass(frozen=True)
class AugmentationSettings:
    """Random changes of the training images of a model with a vision encoder; none by default."""

    smallest_crop: float = setting(
        1.0, "images are cropped at random to at least this share of their area; 1 = never", minimum=0.01, maximum=1.0
    )
    flip: float = setting(0.0, "share of the images that are mirrored", minimum=0.0, maximum=1.0)
    captions_with_sides: str = setting(
        "skip",
        "captions that say left or right: skip = their image is not mirrored, swap = the words change places",
        choices=("skip", "swap"),
    )
    color_jitter: float = setting(
        0.0, "brightness, contrast and saturation change by up to this share", minimum=0.0, below=1.0
    )
    feature_copies: bool = setting(
        False, "each epoch takes the features of features:DIR or of one of their copies (hf-ngsan extract --copies)"
    )

    @property
    def changes_images(self) -> bool:
        return self.smallest_crop < 1 or self.flip > 0 or self.color_jitter > 0


ASPECT_RATIOS = (3 / 4, 4 / 3)
"""Aspect ratios of crops relative to the image: those of Szegedy et al. 2015."""

CROP_TRIALS = 10
SIDES = {"left": "right", "right": "left", "leftmost": "rightmost", "rightmost": "leftmost"}
SIDE = re.compile(rf"\b({'|'.join(SIDES)})\b", re.IGNORECASE)
JITTERED = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


class ImageAugmentation:
    """Changes the image of a row at random, and with it the row's boxes and captions.

    The changes depend on the seed, the epoch and the row's `image_id` alone, so that an epoch can be repeated exactly,
    by any number of workers and processes.

    Args:
        settings: section `augmentation` of a training config.
        seed: seed of all random choices.
    """

    def __init__(self, settings: AugmentationSettings, seed: int = 0) -> None:
        self.settings, self.seed = settings, seed

    def __call__(self, row: Mapping[str, Any], epoch: int) -> dict[str, Any]:
        """Augments a row of the feature contract with an `image`, and `visual_boxes` and `captions` if it has them.

        Raises:
            ImageError: the image cannot be read.
        """
        settings, changed = self.settings, dict(row)
        random = generator_of(self.seed, epoch, row.get("image_id"))
        changed["image"] = load_image(row["image"], f"the image of image_id {row.get('image_id')}")
        says_sides = any(SIDE.search(caption) for caption in row.get("captions") or ())
        if random.random() < settings.flip and (settings.captions_with_sides == "swap" or not says_sides):
            changed = mirrored(changed)
        if settings.smallest_crop < 1:
            changed = cropped(changed, crop_box(changed["image"].size, settings.smallest_crop, random))
        if settings.color_jitter:
            for enhance in JITTERED:
                factor = random.uniform(1 - settings.color_jitter, 1 + settings.color_jitter)
                changed["image"] = enhance(changed["image"]).enhance(factor)
        return changed


def check_augmentation(config: Any, columns: Sequence[str], has_rewards: bool = False) -> None:
    """Raises a ConfigError if a training config asks for augmentation that its data or its stages do not allow.

    Args:
        config: training config with sections `augmentation` and `data`.
        columns: columns of the training rows.
        has_rewards: whether generated captions are compared with those of the rows.
    """
    settings = config.augmentation
    if settings.changes_images and "visual_features" in columns:
        raise ConfigError(
            f"section augmentation changes images, but the model is trained on the features of {config.data.spec}; "
            "give the model a vision_config and data with images, or leave the section out."
        )
    if settings.feature_copies and not config.data.spec.startswith("features:"):
        raise ConfigError(
            f"augmentation.feature_copies goes with features, not with {config.data.spec}; extract them with hf-ngsan "
            "extract --copies and train on features:DIR, or set it to false."
        )
    if settings.flip and settings.captions_with_sides == "swap" and has_rewards:
        raise ConfigError(
            "augmentation.captions_with_sides=swap does not go with self-critical training, whose rewards compare with "
            "the captions as they are; set it to skip."
        )


def augmentation_of(config: Any) -> ImageAugmentation | FeatureCopies | None:
    """Returns the augmentation of a training, or None."""
    settings, data, seed = config.augmentation, config.data, config.training.seed
    if settings.feature_copies:
        return FeatureCopies(data.spec.partition(":")[2], data.train_split, seed)
    return ImageAugmentation(settings, seed) if settings.changes_images else None


def mirrored(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row with its image mirrored; left and right are swapped in boxes and captions."""
    changed = {**row, "image": row["image"].transpose(Image.Transpose.FLIP_LEFT_RIGHT)}
    if row.get("visual_boxes") is not None:
        x1, y1, x2, y2 = np.asarray(row["visual_boxes"], dtype=np.float32).T
        changed["visual_boxes"] = np.stack([1 - x2, y1, 1 - x1, y2], axis=1)
    if row.get("captions"):
        changed["captions"] = [SIDE.sub(other_side, caption) for caption in row["captions"]]
    return changed


def other_side(word: re.Match) -> str:
    other = SIDES[word[0].lower()]
    return other.upper() if word[0].isupper() else other.capitalize() if word[0][0].isupper() else other


def crop_box(size: tuple[int, int], smallest: float, random: np.random.Generator) -> tuple[int, int, int, int]:
    """Draws left, upper, right and lower pixel of a crop with at least the share `smallest` of an image's area.

    It is the "random resized crop" of Szegedy et al. 2015; if none of ten draws fits, the image stays whole.
    """
    width, height = size
    for _ in range(CROP_TRIALS):
        area = random.uniform(smallest, 1)
        stretch = math.exp(random.uniform(*np.log(ASPECT_RATIOS)) / 2)
        crop_width = round(width * math.sqrt(area) * stretch)
        crop_height = round(height * math.sqrt(area) / stretch)
        left, upper = random.random(2)
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left, upper = round(left * (width - crop_width)), round(upper * (height - crop_height))
            return left, upper, left + crop_width, upper + crop_height
    return 0, 0, width, height


def cropped(row: Mapping[str, Any], box: tuple[int, int, int, int]) -> dict[str, Any]:
    """Returns a row with a crop of its image; boxes are clipped to it."""
    image = row["image"]
    changed = {**row, "image": image.crop(box)}
    if row.get("visual_boxes") is not None:
        scale = np.array([image.width, image.height] * 2, dtype=np.float32)
        corner = np.array(box[:2] * 2, dtype=np.float32)
        size = np.array([box[2] - box[0], box[3] - box[1]] * 2, dtype=np.float32)
        boxes = np.asarray(row["visual_boxes"], dtype=np.float32)
        changed["visual_boxes"] = ((boxes * scale - corner) / size).clip(0, 1)
    return changed

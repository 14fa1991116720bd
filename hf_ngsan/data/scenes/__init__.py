"""Synthetic scenes: coloured shapes, features of appearance alone, captions decided by geometry alone, and scores.

```python
rows = load_scenes("train", size=2000)
rows[0]["captions"][0]  # "the red circle lies left of the blue square"
draw_scene(rows[0]).show()
```
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import DataError
from .generator import FEATURE_SIZE, Scene, draw_scene, make_scene
from .relations import COLOURS, FAMILIES, LANDMARK, SHAPES, Family, Statement
from .scoring import RelationPrompt, relation_prompts, score_objects, score_relation_completions, score_relations

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = [
    "COLOURS",
    "FAMILIES",
    "FEATURE_SIZE",
    "LANDMARK",
    "SHAPES",
    "Family",
    "RelationPrompt",
    "Scene",
    "Statement",
    "draw_scene",
    "load_scenes",
    "make_scene",
    "relation_prompts",
    "score_objects",
    "score_relation_completions",
    "score_relations",
]

SPLITS = ("train", "validation", "test")
IMAGE_SIZE = 256
MAX_SCENES = 10**8


def load_scenes(
    split: str,
    *,
    size: int = 2000,
    validation: int | None = None,
    test: int | None = None,
    seed: int = 0,
    images: bool = False,
    image_size: int = IMAGE_SIZE,
    descriptions: bool = False,
) -> "Dataset":
    """Loads or makes one split of the `scenes` dataset.

    A scene depends on the seed, the split and its own number alone: a larger size adds scenes and keeps the first ones,
    and no scene is in two splits.

    Args:
        split: `train`, `validation` or `test`.
        size: number of training scenes.
        validation, test: numbers of validation and test scenes; a tenth and a fifth of `size` by default.
        seed: a non-negative integer.
        images: whether rows have a column `image`.
        image_size: height and width of these images in pixels.
        descriptions: whether each caption joins all five of the scene, each time in another order. One caption alone
            is true of many scenes; retrieval needs captions that are true of one.

    Returns:
        `datasets.Dataset` of the contract with `width`, `height`, `split` and `objects`, the names of the regions.

    Raises:
        DataError: an unknown split or a number out of range.
    """
    sizes = {
        "train": size,
        "validation": max(1, size // 10) if validation is None else validation,
        "test": max(1, size // 5) if test is None else test,
    }
    if split not in sizes:
        raise DataError(f"scenes has no split {split!r}; there are {', '.join(SPLITS)}.")
    for name, number in {"size": size, "validation": sizes["validation"], "test": sizes["test"]}.items():
        if not 1 <= number <= MAX_SCENES:
            raise DataError(f"scenes: {name} is {number}; give a number of scenes between 1 and {MAX_SCENES}.")
    if image_size < 1 or seed < 0:
        raise DataError(f"scenes: image_size is {image_size} and seed {seed}; they must not be negative.")

    from ..contract import caption_features
    from ..prepared import Rows, fingerprint, prepare

    number = sizes[split]
    key = fingerprint("scenes", split, number, seed, images, image_size, descriptions)
    features = caption_features(FEATURE_SIZE, image=images, size=True, split=True, objects=True)
    rows = make_rows(split, number, seed, images, image_size, descriptions)  # a generator: no scene is made yet
    return prepare("scenes", key, split, lambda: Rows(features, rows, number))


def make_rows(
    split: str, number: int, seed: int, images: bool, image_size: int, descriptions: bool
) -> Iterator[dict[str, Any]]:
    split_number = SPLITS.index(split)
    for index in range(number):
        scene = make_scene(seed, split_number, index)
        captions = scene.captions
        if descriptions:  # each joins all captions and begins with another one
            captions = [" and ".join(captions[first:] + captions[:first]) for first in range(len(captions))]
        row = {
            "image_id": split_number * MAX_SCENES + index,
            "visual_features": scene.features,
            "visual_boxes": scene.boxes,
            "captions": captions,
            "width": image_size,
            "height": image_size,
            "split": split,
            "objects": scene.objects,
        }
        if images:
            row["image"] = draw_scene(scene, image_size)
        yield row

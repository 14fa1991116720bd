"""Synthetic scenes: coloured shapes with appearance-only features, captions determined by geometry only, and scores.

Every scene has one square, the landmark, and captions that relate other objects to it. The relation depends only on
geometry:

1. a fair coin chooses the answer of each family in the captions, for example `left of` or `right of`;
2. layouts are sampled until one matches the coins;
3. appearances are assigned to the positions independently of both.

Given the appearances and the number of objects, and a caption up to its relation, both answers are equally likely: the
accuracy of a model without geometry is one half. Mirrored layouts are also equally likely, so the same holds for the
directional families given the unsigned geometry of eq. 8 of Guo et al. 2020.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from .relations import COLOURS as COLOURS
from .relations import DIRECTIONAL, FIRST, answer_families, in_chinese
from .relations import FAMILIES as FAMILIES
from .relations import LANDMARK as LANDMARK
from .relations import SHAPES as SHAPES
from .relations import Statement as Statement
from .scoring import relation_prompts as relation_prompts
from .scoring import score_objects as score_objects
from .scoring import score_relation_completions as score_relation_completions

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

SPLITS = ("train", "validation", "test")
IMAGE_SIZE = 256
MAX_SCENES = 10**8
CAPTIONS_PER_SCENE = 5
FEATURE_SIZE = len(COLOURS) + len(SHAPES)

MIN_OBJECTS, MAX_OBJECTS = 3, 6
SIZES = (0.06, 0.24)  # relative to the canvas; distances are in mean sizes of two objects
LANDMARK_SIZES = (0.08, 0.2)
GAP = 1.15  # the smallest |dx| / w or |dy| / h of objects that do not touch
MAX_DISTANCE = 5.0
FEATURE_NOISE = 0.05
LAYOUTS_AT_ONCE = 48  # proposals per round; most of them do not match

BACKGROUND = "#f4f1ea"
PAINT = dict(zip(COLOURS, ("#d62728", "#2ca02c", "#1f6fd0", "#f2c011", "#8e44ad", "#222222"), strict=True))
RIM = 0.008  # relative to the canvas
OVERSAMPLING = 4
MIN_CANVAS = 512  # pixels; small pictures are drawn large and then resized, so that they look like resized large ones

Point = tuple[float, float]


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
    language: str = "en",
) -> "Dataset":
    """Loads or makes one split of the `scenes` dataset.

    A scene depends only on the seed, the split and its number: a larger size adds scenes and keeps the first ones, and
    no scene is in two splits.

    Args:
        split: `train`, `validation` or `test`.
        size: number of training scenes.
        validation, test: numbers of validation and test scenes; a tenth and a fifth of `size` by default.
        seed: a non-negative integer.
        images: whether rows have a column `image`.
        image_size: height and width of these images in pixels.
        descriptions: whether each caption joins all five captions of the scene, each in another order. A single caption
            is true for many scenes; retrieval needs captions that are true for one.
        language: `en`, or `zh` for captions in Chinese.

    Returns:
        `datasets.Dataset` of the contract with `width`, `height`, `split` and `objects` (names of the regions).

    Raises:
        DataError: an unknown split or a number out of range.
    """
    number = size_of_split("scenes", split, size, validation, test)
    if language not in ("en", "zh") or (descriptions and language != "en"):
        raise DataError(f"scenes: language is {language!r}; captions can be in en or zh, and descriptions in en.")

    from ..contract import caption_features
    from ..prepared import Rows, prepare

    settings = (number, seed, images, image_size, descriptions, language)
    features = caption_features(FEATURE_SIZE, image=images, size=True, split=True, objects=True)
    return prepare("scenes", 1, split, settings, lambda: Rows(features, scene_rows(split, *settings), number))


def size_of_split(name: str, split: str, size: int, validation: int | None, test: int | None) -> int:
    """Returns the number of scenes of a split; by default, a tenth and a fifth of the training scenes."""
    validation = max(1, size // 10) if validation is None else validation
    sizes = {"train": size, "validation": validation, "test": max(1, size // 5) if test is None else test}
    if split not in sizes:
        raise DataError(f"{name} has no split {split!r}; available: {', '.join(SPLITS)}.")
    if not all(1 <= number <= MAX_SCENES for number in sizes.values()):
        raise DataError(f"{name}: size, validation and test are {sizes}; they must be between 1 and {MAX_SCENES}.")
    return sizes[split]


def scene_rows(
    split: str, number: int, seed: int, images: bool, image_size: int, descriptions: bool, language: str
) -> Iterator[dict[str, Any]]:
    for index in range(number):
        scene = make_scene(seed, SPLITS.index(split), index)
        captions = scene.captions if language == "en" else [*map(in_chinese, scene.captions)]
        if descriptions:  # each joins all captions, starting with a different one
            captions = [" and ".join(captions[first:] + captions[:first]) for first in range(len(captions))]
        row = {
            "image_id": SPLITS.index(split) * MAX_SCENES + index,
            "visual_features": scene.features,
            "visual_boxes": scene.boxes,
            "captions": captions,
            "width": image_size,
            "height": image_size,
            "split": split,
            "objects": scene.objects,
        }
        yield {**row, "image": draw_scene(scene, image_size)} if images else row


@dataclass(frozen=True)
class Scene:
    """Named objects of different colours: boxes float32 `(N, 4)`, relative to a square canvas, features float32
    `(N, 10)` (one-hot colour and shape with a little noise), and five captions."""

    objects: list[str]
    boxes: np.ndarray
    features: np.ndarray
    captions: list[str]


def make_scene(*key: int) -> Scene:
    """Makes the scene of a key of non-negative integers, e.g. `(seed, split, index)`; equal keys give equal scenes."""
    random = np.random.default_rng(key)
    number = int(random.integers(MIN_OBJECTS, MAX_OBJECTS + 1))
    coins = throw_coins(number, random)
    boxes = lay_out(number, coins, random)
    objects, features = give_appearances(number, random)
    captions = relation_captions(objects, boxes, coins, random)

    order = random.permutation(number)
    return Scene(
        objects=[objects[i] for i in order],
        boxes=boxes[order].astype(np.float32),
        features=features[order].astype(np.float32),
        captions=[captions[i] for i in random.permutation(len(captions))],
    )


def throw_coins(number: int, random: np.random.Generator) -> dict[str, int]:
    """Returns an answer, by family name, for both directional families and three of the four symmetric ones."""
    directional = [family.name for family in FAMILIES if family.group == DIRECTIONAL]
    symmetric = [family.name for family in FAMILIES if family.group != DIRECTIONAL]
    if number == MIN_OBJECTS:
        symmetric.remove("contact")  # it would leave only one object for all other families
    chosen = random.choice(symmetric, size=CAPTIONS_PER_SCENE - len(directional), replace=False)
    return {name: int(random.integers(2)) for name in [*directional, *chosen]}


def give_appearances(number: int, random: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Returns names and features of the objects, the landmark first; all colours differ."""
    colours = random.choice(len(COLOURS), size=number, replace=False)
    landmark = SHAPES.index(LANDMARK)
    shapes = random.choice([shape for shape in range(len(SHAPES)) if shape != landmark], size=number)
    shapes[0] = landmark
    objects = [f"{COLOURS[colour]} {SHAPES[shape]}" for colour, shape in zip(colours, shapes, strict=True)]
    features = np.concatenate([np.eye(len(COLOURS))[colours], np.eye(len(SHAPES))[shapes]], axis=1)
    return objects, features + FEATURE_NOISE * random.standard_normal(features.shape)


def relation_captions(
    objects: list[str], boxes: np.ndarray, coins: dict[str, int], random: np.random.Generator
) -> list[str]:
    """Returns, for each coin, a caption about an object that has this answer in relation to the landmark."""
    answers = answer_families(boxes, boxes[:1])
    captions = []
    for family in FAMILIES:
        if family.name in coins:
            subject = random.choice(np.flatnonzero(answers[family.name] == coins[family.name]))
            captions.append(Statement(objects[subject], family.relations[coins[family.name]], objects[0]).caption)
    return captions


def lay_out(number: int, coins: dict[str, int], random: np.random.Generator) -> np.ndarray:
    """Returns boxes `(N, 4)`, the landmark first, such that some object has the answer of each coin."""
    while True:
        boxes = propose_layouts(number, coins, random)
        boxes = boxes[np.all((boxes >= 0) & (boxes <= 1), axis=(1, 2))]  # within the canvas
        boxes = boxes[touch_as_meant(boxes, coins)]
        answers = answer_families(boxes, boxes[:, :1])
        boxes = boxes[np.all([(answers[family] == coin).any(axis=1) for family, coin in coins.items()], axis=0)]
        if len(boxes):
            return boxes[0]


def propose_layouts(number: int, coins: dict[str, int], random: np.random.Generator) -> np.ndarray:
    """Returns layouts `(L, N, 4)` around the landmark, randomly shifted within the canvas, that are likely to match the
    coins. Any object may be placed for an answer, because objects have no appearance yet."""
    layouts = LAYOUTS_AT_ONCE

    def uniform(low: float, high: float, *shape: int) -> np.ndarray:
        return random.uniform(low, high, size=(layouts, *shape))

    sizes = np.exp(uniform(*np.log(SIZES), number))
    sizes[:, 0] = uniform(*LANDMARK_SIZES)
    distances, angles = uniform(GAP, MAX_DISTANCE, number), uniform(0, 2 * np.pi, number)
    if "size" in coins:
        ratio = uniform(1.6, 2.4)
        sizes[:, -1] = sizes[:, 0] * (ratio if coins["size"] == FIRST else 1 / ratio)
    if "axis" in coins:
        distances[:, -1] = uniform(GAP, 2.2)
        angles[:, -1] = angles_along(coins["axis"], random, layouts)
    if "distance" in coins:
        distances[:, -2] = uniform(GAP, 1.7) if coins["distance"] == FIRST else uniform(3, MAX_DISTANCE)
    if "contact" in coins and coins["contact"] == FIRST:
        sizes[:, 1] = sizes[:, 0] * uniform(1 / 1.3, 1.3)
        distances[:, 1] = uniform(0.4, 0.55)
        angles[:, 1] = angles_along(random.integers(2, size=layouts), random, layouts)
    elif "contact" in coins:
        sizes[:, 1] = sizes[:, 0] * uniform(0.35, 0.5)
        distances[:, 1] = uniform(0, 0.1)

    sizes = sizes[..., None]
    distances[:, 0] = 0
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    centres = directions * distances[..., None] * (sizes + sizes[:, :1]) / 2
    boxes = np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=-1)
    low, high = boxes[..., :2].min(axis=1), boxes[..., 2:].max(axis=1)
    shift = -low + uniform(0, 1, 2) * (1 - (high - low))
    return boxes + np.tile(shift, 2)[:, None]


def angles_along(axis: int | np.ndarray, random: np.random.Generator, layouts: int) -> np.ndarray:
    """Returns angles near the horizontal axis (0) or the vertical one (1), in either direction."""
    return axis * np.pi / 2 + random.integers(2, size=layouts) * np.pi + random.uniform(-0.35, 0.35, size=layouts)


def touch_as_meant(boxes: np.ndarray, coins: dict[str, int]) -> np.ndarray:
    """Returns whether all objects keep a gap, except the landmark and the object in contact with it."""
    sizes, centres = boxes[..., 2:] - boxes[..., :2], (boxes[..., 2:] + boxes[..., :2]) / 2
    distances = np.abs(centres[:, :, None] - centres[:, None]) / ((sizes[:, :, None] + sizes[:, None]) / 2)
    meant = np.eye(boxes.shape[1], dtype=bool)
    if "contact" in coins:
        meant[0, 1] = meant[1, 0] = True
    return ((distances.max(axis=-1) >= GAP) | meant).all(axis=(1, 2))


def draw_scene(scene: Scene | Mapping[str, Any], size: int = 256) -> "Image":
    """Draws a `Scene`, or a row of the `scenes` dataset with `objects` and `visual_boxes`, as an RGB image.

    Large objects are behind small ones. A small picture of `size` pixels is, up to rounding, a large one resized with
    Pillow's bilinear filter, as in image processors.
    """
    from PIL import Image, ImageDraw

    parts: Mapping[str, Any] = scene if isinstance(scene, Mapping) else {**vars(scene), "visual_boxes": scene.boxes}
    canvas = Image.new("RGB", (max(size * OVERSAMPLING, MIN_CANVAS),) * 2, BACKGROUND)
    pen = ImageDraw.Draw(canvas)
    shapes = zip(parts["objects"], parts["visual_boxes"], strict=True)
    for name, box in sorted(shapes, key=lambda item: -float((item[1][2] - item[1][0]) * (item[1][3] - item[1][1]))):
        colour, shape = name.split()
        left, top, right, bottom = box
        rim = left - RIM, top - RIM, right + RIM, bottom + RIM  # separates overlapping objects
        for corners, paint in ((rim, BACKGROUND), (box, PAINT[colour])):
            pen.polygon([(x * canvas.width, y * canvas.height) for x, y in outline(shape, corners)], fill=paint)
    return canvas.resize((size, size), Image.Resampling.BILINEAR)


def outline(shape: str, box: Sequence[float]) -> list[Point]:
    left, top, right, bottom = box
    return [(left + x * (right - left), top + y * (bottom - top)) for x, y in POINTS[shape]]


def points_around(*radii: float, points: int) -> list[Point]:
    """Returns points at equal angles around the centre, clockwise from the top, with alternating radii; they fill the
    unit square."""
    angles = [2 * math.pi * i / points for i in range(points)]
    xs = [radii[i % len(radii)] * math.sin(angle) for i, angle in enumerate(angles)]
    ys = [-radii[i % len(radii)] * math.cos(angle) for i, angle in enumerate(angles)]
    left, width, top, height = min(xs), max(xs) - min(xs), min(ys), max(ys) - min(ys)
    return [((x - left) / width, (y - top) / height) for x, y in zip(xs, ys, strict=True)]


POINTS: dict[str, list[Point]] = {
    "circle": points_around(1, points=128),
    "triangle": [(0.5, 0), (1, 1), (0, 1)],
    "star": points_around(1, 0.5, points=10),
    "square": [(0, 0), (1, 0), (1, 1), (0, 1)],
}

"""Drawing of scenes: from objects and boxes to pixels."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DataError
from .generator import Scene
from .relations import COLOURS

if TYPE_CHECKING:
    from PIL.Image import Image

Box = Sequence[float]
Point = tuple[float, float]

BACKGROUND = "#f4f1ea"
PAINT = dict(zip(COLOURS, ("#d62728", "#2ca02c", "#1f6fd0", "#f2c011", "#8e44ad", "#222222"), strict=True))
RIM = 0.008  # share of the canvas
OVERSAMPLING = 4
MIN_CANVAS = 512  # pixels; a small picture is drawn large and then resized, so that it looks like a resized large one


def draw_scene(scene: Scene | Mapping[str, Any], size: int = 256) -> "Image":
    """Draws a scene.

    Args:
        scene: a `Scene`, or a row of the `scenes` dataset with `objects` and `visual_boxes`.
        size: width and height of the picture in pixels.

    Returns:
        An RGB `PIL.Image.Image`. Large objects lie behind small ones. A small picture is, but for rounding, a large one
        resized with Pillow's bilinear filter, as image processors do it.
    """
    from PIL import Image, ImageDraw

    objects, boxes = objects_and_boxes(scene)
    canvas = Image.new("RGB", (max(size * OVERSAMPLING, MIN_CANVAS),) * 2, BACKGROUND)
    pen = ImageDraw.Draw(canvas)
    for name, box in sorted(zip(objects, boxes, strict=True), key=lambda item: -area_of(item[1])):
        colour, shape = name.split()
        left, top, right, bottom = box
        rim = left - RIM, top - RIM, right + RIM, bottom + RIM  # separates overlapping objects
        for corners, paint in ((rim, BACKGROUND), (box, PAINT[colour])):
            pen.polygon([(x * canvas.width, y * canvas.height) for x, y in outline(shape, corners)], fill=paint)
    return canvas.resize((size, size), Image.Resampling.BILINEAR)


def objects_and_boxes(scene: Scene | Mapping[str, Any]) -> tuple[Sequence[str], Iterable[Box]]:
    if isinstance(scene, Scene):
        return scene.objects, scene.boxes
    for field in ("objects", "visual_boxes"):
        if scene.get(field) is None:
            raise DataError(f"A row has no {field!r}; only rows of load_data('scenes', …) can be drawn.")
    return scene["objects"], scene["visual_boxes"]


def area_of(box: Box) -> float:
    return float((box[2] - box[0]) * (box[3] - box[1]))


def outline(shape: str, box: Box) -> list[Point]:
    """Returns points around a shape that fills its box."""
    left, top, right, bottom = box
    return [(left + x * (right - left), top + y * (bottom - top)) for x, y in POINTS[shape]]


def points_around(*radii: float, points: int) -> list[Point]:
    """Returns points at equal angles around the centre, clockwise from the top, with the radii in turn; they fill the
    unit square."""
    angles = [2 * math.pi * i / points for i in range(points)]
    xs = [radii[i % len(radii)] * math.sin(angle) for i, angle in enumerate(angles)]
    ys = [-radii[i % len(radii)] * math.cos(angle) for i, angle in enumerate(angles)]
    return [
        ((x - min(xs)) / (max(xs) - min(xs)), (y - min(ys)) / (max(ys) - min(ys))) for x, y in zip(xs, ys, strict=True)
    ]


POINTS: dict[str, list[Point]] = {
    "circle": points_around(1, points=128),
    "triangle": [(0.5, 0), (1, 1), (0, 1)],
    "star": points_around(1, 0.5, points=10),
    "square": [(0, 0), (1, 0), (1, 1), (0, 1)],
}

"""Pixels of a scene."""

import math

from ..errors import DataError
from .relations import COLOURS

BACKGROUND = "#f4f1ea"
_PAINT = dict(zip(COLOURS, ("#d62728", "#2ca02c", "#1f6fd0", "#f2c011", "#8e44ad", "#222222"), strict=True))
_RIM = 0.008  # of the canvas
_OVERSAMPLING = 4
_SMALLEST_CANVAS = 512  # so that a small picture looks like a large one that was made small


def draw_scene(scene, size=256):
    """Draw a scene.

    Args:
        scene: a `Scene`, or a row of the `scenes` data set with `objects` and `visual_boxes`.
        size: width and height of the picture in pixels.

    Returns:
        An RGB `PIL.Image.Image`. Large objects lie behind small ones. A small picture is, but for rounding, a large one
        resized with Pillow's bilinear filter, as image processors do it.
    """
    from PIL import Image, ImageDraw

    objects, boxes = _objects_and_boxes(scene)
    canvas = Image.new("RGB", (max(size * _OVERSAMPLING, _SMALLEST_CANVAS),) * 2, BACKGROUND)
    pen = ImageDraw.Draw(canvas)
    for name, box in sorted(zip(objects, boxes, strict=True), key=lambda item: -_area(item[1])):
        colour, shape = name.split()
        for corners, paint in ((_grow(box, _RIM), BACKGROUND), (box, _PAINT[colour])):
            pen.polygon([(x * canvas.width, y * canvas.height) for x, y in _outline(shape, corners)], fill=paint)
    return canvas.resize((size, size), Image.Resampling.BILINEAR)


def _objects_and_boxes(scene):
    if not isinstance(scene, dict):
        return scene.objects, scene.boxes
    for field in ("objects", "visual_boxes"):
        if scene.get(field) is None:
            raise DataError(f"A row has no {field!r}; only rows of load_data('scenes', …) can be drawn.")
    return scene["objects"], scene["visual_boxes"]


def _area(box):
    return float((box[2] - box[0]) * (box[3] - box[1]))


def _grow(box, rim):
    """The box with a rim in the colour of the background, which sets overlapping objects apart."""
    left, top, right, bottom = box
    return left - rim, top - rim, right + rim, bottom + rim


def _outline(shape, box):
    """Points around a shape that fills its box."""
    left, top, right, bottom = box
    return [(left + x * (right - left), top + y * (bottom - top)) for x, y in _POINTS[shape]]


def _around(*radii, points):
    """Points at equal angles around the centre, clockwise from the top, with the radii in turn; they fill the unit
    square."""
    angles = [2 * math.pi * i / points for i in range(points)]
    xs = [radii[i % len(radii)] * math.sin(angle) for i, angle in enumerate(angles)]
    ys = [-radii[i % len(radii)] * math.cos(angle) for i, angle in enumerate(angles)]
    return [
        ((x - min(xs)) / (max(xs) - min(xs)), (y - min(ys)) / (max(ys) - min(ys))) for x, y in zip(xs, ys, strict=True)
    ]


_POINTS = {
    "circle": _around(1, points=128),
    "triangle": [(0.5, 0), (1, 1), (0, 1)],
    "star": _around(1, 0.5, points=10),
    "square": [(0, 0), (1, 0), (1, 1), (0, 1)],
}

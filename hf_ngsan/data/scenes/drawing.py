"""Pixels of a scene."""

import math

from ..errors import DataError
from .relations import COLOURS, SHAPES

BACKGROUND = "#f4f1ea"
_PAINT = dict(zip(COLOURS, ("#d62728", "#2ca02c", "#1f6fd0", "#f2c011", "#8e44ad", "#222222"), strict=True))
_OVERSAMPLING = 4


def draw_scene(scene, size=256):
    """Draw a scene.

    Args:
        scene: a `Scene`, or a row of the `scenes` data set with `objects` and `visual_boxes`.
        size: width and height of the picture in pixels.

    Returns:
        An RGB `PIL.Image.Image`. Large objects lie behind small ones.
    """
    from PIL import Image, ImageDraw

    objects, boxes = _objects_and_boxes(scene)
    canvas = Image.new("RGB", (size * _OVERSAMPLING,) * 2, BACKGROUND)
    pen = ImageDraw.Draw(canvas)
    for name, box in sorted(zip(objects, boxes, strict=True), key=lambda item: -_area(item[1])):
        colour, shape = name.split()
        scaled = [float(side) * size * _OVERSAMPLING for side in box]
        style = {"fill": _PAINT[colour], "outline": BACKGROUND, "width": max(1, size * _OVERSAMPLING // 128)}
        if shape == "circle":
            pen.ellipse(scaled, **style)
        else:
            pen.polygon(_corners(shape, scaled), **style)
    return canvas.resize((size, size), Image.Resampling.LANCZOS)


def _objects_and_boxes(scene):
    if not isinstance(scene, dict):
        return scene.objects, scene.boxes
    for field in ("objects", "visual_boxes"):
        if scene.get(field) is None:
            raise DataError(
                f"This row has no {field!r}, so it is not a scene to draw; take rows of load_data('scenes', …)."
            )
    return scene["objects"], scene["visual_boxes"]


def _area(box):
    return float((box[2] - box[0]) * (box[3] - box[1]))


def _corners(shape, box):
    """Corner points of a shape that fills its box."""
    left, top, right, bottom = box
    if shape == "square":
        points = [(0, 0), (1, 0), (1, 1), (0, 1)]
    elif shape == "triangle":
        points = [(0.5, 0), (1, 1), (0, 1)]
    else:
        assert shape == SHAPES[3] == "star"
        points = _stretch([_star_point(i) for i in range(10)])
    return [(left + x * (right - left), top + y * (bottom - top)) for x, y in points]


def _star_point(i):
    radius = 1 if i % 2 == 0 else 0.5
    return radius * math.sin(i * math.pi / 5), -radius * math.cos(i * math.pi / 5)


def _stretch(points):
    """Points moved and scaled to fill the unit square."""
    xs, ys = zip(*points, strict=True)
    return [((x - min(xs)) / (max(xs) - min(xs)), (y - min(ys)) / (max(ys) - min(ys))) for x, y in points]

"""Regions that can be dragged: a drawing, the captions of it, and how much one region attends to the others."""

import html
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..data.scenes.drawing import BACKGROUND, PAINT, outline
from .captions import MAP_COLOUR, STRONGEST, captions_of, viewer
from .parts import Parts

SIDE = 100
"""Width and height of a drawing, in units of its own; boxes within [0, 1] are stretched to the shape of the image."""
SMALLEST = 0.03
THICKEST = 4
NOTE = (
    "Drag a region or its lower right corner, or move it with the arrow keys (the corner with Shift). Lines and table "
    "tell how much the region that was moved last attends to the others in the encoder (mean over layers and heads). "
    "Point at a word to see where the captioner looked for it."
)
COLOUR = "rgb({}, {}, {})".format(*MAP_COLOUR)

STYLE = """
.drawing { touch-action: none; user-select: none; border-radius: .4em; }
.drawing .region { cursor: grab; }
.drawing .region:focus { outline: none; }
.drawing .region .box { fill: transparent; stroke: #888; stroke-width: .3; stroke-dasharray: 1 1; }
.drawing .region:hover .box, .drawing .region:focus .box, .drawing .chosen .box { stroke: #222; stroke-width: .5; }
.drawing .corner { fill: #222; opacity: 0; cursor: nwse-resize; }
.drawing .region:hover .corner, .drawing .chosen .corner { opacity: .8; }
.drawing text { font: 3px sans-serif; fill: #333; pointer-events: none; }
.weights { border-collapse: collapse; font-size: .95em; margin: 1em 0; }
.weights td, .weights th { padding: .1em .7em; text-align: left; font-variant-numeric: tabular-nums; }
"""
SCRIPT = """
const place = event => {
  const frame = element.querySelector('.drawing').getBoundingClientRect();
  return [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
};
const tell = (region, dx, dy, corner) =>
  trigger('release', {index: Number(region.dataset.index), dx: dx, dy: dy, corner: corner});
let held = null;
element.addEventListener('pointerdown', event => {
  const region = event.target.closest('.region');
  if (!region) return;
  held = {region: region, from: place(event), corner: event.target.classList.contains('corner')};
  element.setPointerCapture(event.pointerId);
  event.preventDefault();
});
element.addEventListener('pointermove', event => {
  if (!held) return;
  const now = place(event), dx = 100 * (now[0] - held.from[0]), dy = 100 * (now[1] - held.from[1]);
  const box = held.region.querySelector('.box');
  if (held.corner) {
    box.setAttribute('width', Math.max(3, Number(box.dataset.width) + dx));
    box.setAttribute('height', Math.max(3, Number(box.dataset.height) + dy));
  } else held.region.setAttribute('transform', `translate(${dx} ${dy})`);
});
element.addEventListener('pointerup', event => {
  if (!held) return;
  const now = place(event);
  tell(held.region, now[0] - held.from[0], now[1] - held.from[1], held.corner);
  held = null;
});
element.addEventListener('keydown', event => {
  const steps = {ArrowLeft: [-.02, 0], ArrowRight: [.02, 0], ArrowUp: [0, -.02], ArrowDown: [0, .02]};
  const region = event.target.closest('.region');
  if (!region || !(event.key in steps)) return;
  event.preventDefault();
  tell(region, ...steps[event.key], event.shiftKey);
});
"""
"""Tells the server by how much a region was moved, or its lower right corner: with the pointer, or by arrow keys."""


def moved(boxes: np.ndarray, change: Mapping[str, Any]) -> np.ndarray:
    """Returns boxes `(N, 4)` after one of them was moved or resized within the image.

    Args:
        boxes: x1, y1, x2, y2 within [0, 1].
        change: `index` of the box, `dx` and `dy` as shares of width and height, and `corner`, whether they move its
            lower right corner alone.

    Raises:
        ValueError: no such box, or no finite numbers.
    """
    index, step = change.get("index"), (change.get("dx"), change.get("dy"))
    if not isinstance(index, int) or not 0 <= index < len(boxes):
        raise ValueError(f"There is no region {index}; there are {len(boxes)}.")
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in step):
        raise ValueError(f"A region cannot be moved by {step}; give two finite numbers.")
    boxes = np.array(boxes, dtype=np.float32)
    box, by = boxes[index], np.array(step, dtype=np.float64).clip(-2, 2)
    if change.get("corner"):
        box[2:] = np.clip(box[2:] + by, np.minimum(box[:2] + SMALLEST, 1), 1)
        box[:2] = np.minimum(box[:2], box[2:] - SMALLEST)
    else:
        size = box[2:] - box[:2]
        box[:2] = np.clip(box[:2] + by, 0, 1 - size)
        box[2:] = np.minimum(box[:2] + size, 1)
    return boxes


def region_attention(model: Any, inputs: Mapping[str, Any]) -> np.ndarray:
    """Returns how much each of N regions attends to each in the encoder, `(N, N)`: the mean over layers and heads."""
    with torch.inference_mode():
        encoded = model.model.encoder(**inputs, output_attentions=True, attn_implementation="eager")
    return torch.stack(encoded.attentions).float().mean((0, 2))[0].cpu().numpy()


def names_of(row: Mapping[str, Any]) -> list[str]:
    """Returns what regions are called: the objects of a synthetic scene, else numbers."""
    return row.get("objects") or [f"region {number}" for number in range(1, len(row["visual_features"]) + 1)]


def look_of(name: str, box: Sequence[float]) -> str:
    """Returns the drawing of an object of a synthetic scene, or a filled box with a name."""
    colour, _, shape = name.partition(" ")
    if colour in PAINT:
        points = " ".join(f"{SIDE * x:.2f},{SIDE * y:.2f}" for x, y in outline(shape, box))
        return f'<polygon points="{points}" fill="{PAINT[colour]}" stroke="{BACKGROUND}" stroke-width="0.8"/>'
    x, y, right, bottom = (SIDE * value for value in box)
    size = f'x="{x:.2f}" y="{y:.2f}" width="{right - x:.2f}" height="{bottom - y:.2f}"'
    text = f'<text x="{x + 0.7:.2f}" y="{y + 3.4:.2f}">{html.escape(name)}</text>'
    return f'<rect {size} fill="#7a93ad" opacity="0.25"/>{text}'


def drawing(names: Sequence[str], boxes: np.ndarray, chosen: int, weights: np.ndarray, shape: str) -> str:
    """Draws regions, and lines from the chosen one to the others, as thick as it attends to them."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    regions, centres = [], SIDE * (boxes[:, :2] + boxes[:, 2:]) / 2
    for index in np.argsort(-areas).tolist():
        x, y, right, bottom = (SIDE * value for value in boxes[index].tolist())
        width, height = right - x, bottom - y
        regions.append(
            f'<g class="region{" chosen" if index == chosen else ""}" tabindex="0" data-index="{index}">'
            f"<title>{html.escape(names[index])}</title>{look_of(names[index], boxes[index].tolist())}"
            f'<rect class="box" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
            f'data-width="{width:.2f}" data-height="{height:.2f}"/>'
            f'<rect class="corner" x="{right - 1.5:.2f}" y="{bottom - 1.5:.2f}" width="3" height="3"/></g>'
        )
    lines = [
        f'<line x1="{centres[chosen, 0]:.2f}" y1="{centres[chosen, 1]:.2f}" x2="{x:.2f}" y2="{y:.2f}" '
        f'stroke="{COLOUR}" stroke-width="{THICKEST * float(weight):.2f}" opacity="0.7" pointer-events="none"/>'
        for index, ((x, y), weight) in enumerate(zip(centres, weights[chosen], strict=True))
        if index != chosen
    ]
    return (
        f'<svg class="stage drawing" viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" '
        f'style="{shape}; background: {BACKGROUND}">{"".join(regions)}{"".join(lines)}</svg>'
    )


def regions_over(boxes: np.ndarray, weights: np.ndarray, shape: str) -> str:
    """Returns regions with the weights `(N,)` of a word as an overlay of their drawing."""
    strongest = max(float(weights.max()), 1e-12)
    parts = []
    for (x, y, right, bottom), weight in zip((SIDE * boxes).tolist(), weights.tolist(), strict=True):
        parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{right - x:.2f}" height="{bottom - y:.2f}" fill="{COLOUR}" '
            f'opacity="{STRONGEST * weight / strongest:.2f}"/>'
        )
    return (
        f'<svg class="overlay" viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" style="{shape}">'
        f"{''.join(parts)}</svg>"
    )


def table_of(names: Sequence[str], chosen: int, weights: np.ndarray, before: np.ndarray) -> str:
    """Returns how much the chosen region attends to each, and how much it did before it was moved, most first."""
    rows = []
    for index in np.argsort(-weights[chosen]).tolist():
        now, change = weights[chosen, index], weights[chosen, index] - before[chosen, index]
        name = "itself" if index == chosen else names[index]
        rows.append(f"<tr><td>{html.escape(name)}</td><td>{now:.3f}</td><td>{change:+.3f}</td></tr>")
    title = f"<tr><th>the {html.escape(names[chosen])} attends to</th><th>weight</th><th>change</th></tr>"
    return f'<table class="weights">{title}{"".join(rows)}</table>'


class Regions:
    """An example of a dataset whose regions are moved about.

    Args:
        parts: with a captioner that takes features and boxes.
        row: of the dataset.
        boxes: `(N, 4)` in place of the row's.
    """

    def __init__(self, parts: Parts, row: Mapping[str, Any], boxes: np.ndarray | None = None):
        self.parts, self.names = parts, names_of(row)
        self.features = np.asarray(row["visual_features"], dtype=np.float32)
        self.boxes = np.asarray(row["visual_boxes"] if boxes is None else boxes, dtype=np.float32)
        width, height = row.get("width") or 1, row.get("height") or 1
        self.shape = f"aspect-ratio: {width} / {height}"

    @cached_property
    def attention(self) -> np.ndarray:
        """How much each region attends to each, `(N, N)`."""
        pipeline = self.parts.pipeline
        inputs = pipeline.processor(visual_features=[self.features], visual_boxes=[self.boxes])
        names = ("visual_features", "visual_boxes", "attention_mask")
        visual = {name: inputs[name].to(pipeline.device) for name in names if name in inputs}
        return region_attention(pipeline.model, visual)

    def html(self, chosen: int, before: np.ndarray, num_beams: int) -> str:
        """Returns the drawing, its captions, and the weights of the chosen region beside those before."""
        answers = self.parts.captions({"visual_features": self.features, "visual_boxes": self.boxes}, num_beams)
        found = captions_of(answers, lambda weights: regions_over(self.boxes, weights, self.shape))
        stage = drawing(self.names, self.boxes, chosen, self.attention, self.shape)
        return viewer(stage, [*found, table_of(self.names, chosen, self.attention, before)], NOTE, kind="wide")

"""Drawings of regions that a user drags, and of the captioner's attention to them."""

import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..data.scenes.generator import BACKGROUND, PAINT, outline
from .captions import MAP_COLOUR, STRONGEST

SIDE = 100
"""Width and height of a drawing in its own units; boxes within [0, 1] are stretched to the shape of the image."""
MAX_THICKNESS = 4
COLOUR = "rgb({}, {}, {})".format(*MAP_COLOUR)

STYLE = Path(__file__).with_name("drawing.css").read_text(encoding="utf-8")
SCRIPT = Path(__file__).with_name("drawing.js").read_text(encoding="utf-8")


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
    """Draws regions, and lines from the chosen one to the others; their thickness is its attention to them."""
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
        f'stroke="{COLOUR}" stroke-width="{MAX_THICKNESS * float(weight):.2f}" opacity="0.7" pointer-events="none"/>'
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
    """Returns the attention of the chosen region to each, now and before it was moved, sorted."""
    rows = []
    for index in np.argsort(-weights[chosen]).tolist():
        now, change = weights[chosen, index], weights[chosen, index] - before[chosen, index]
        name = "itself" if index == chosen else names[index]
        rows.append(f"<tr><td>{html.escape(name)}</td><td>{now:.3f}</td><td>{change:+.3f}</td></tr>")
    title = f"<tr><th>the {html.escape(names[chosen])} attends to</th><th>weight</th><th>change</th></tr>"
    return f'<table class="weights">{title}{"".join(rows)}</table>'

"""Draws parts of the page as HTML: captions with attention maps, and draggable regions with the attention to them.

The attention map of a word is shown while the pointer or the keyboard focus is on the word.
"""

import html
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..data.scenes import BACKGROUND, PAINT, outline
from ..visualization.figures import data_url

SHOWN_SIDE, MAP_SIDE = 768, 128
"""Longest sides, in pixels, of a photograph on the page and of attention maps, which the browser enlarges."""
MAP_COLOUR = (255, 106, 0)
COLOUR = "rgb({}, {}, {})".format(*MAP_COLOUR)
STRONGEST = 0.8
"""Opacity of an attention map at its largest weight."""
SIDE = 100
"""Width and height of a drawing in SVG units; boxes within [0, 1] are stretched to the shape of the image."""
MAX_THICKNESS = 4
NO_WEIGHT = 1e-12
CAPTION_STYLE, REGION_STYLE, REGION_SCRIPT = (
    Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("captions.css", "drawing.css", "drawing.js")
)


def photograph_url(image: Image.Image) -> str:
    return data_url(image.convert("RGB"), "JPEG", SHOWN_SIDE, quality=88)


def shape_of(image: Image.Image) -> str:
    return f"aspect-ratio: {image.width} / {image.height}; --ratio: {image.width / image.height:.4f}"


def map_over(image: Image.Image, weights: np.ndarray) -> str:
    """Returns the attention map `(height, width)` of a word as an overlay for a photograph of any size."""
    pixels = np.empty((*weights.shape, 4), dtype=np.uint8)
    pixels[..., :3] = MAP_COLOUR
    pixels[..., 3] = np.round(255 * STRONGEST * weights / max(float(weights.max()), NO_WEIGHT))
    return f'<img class="overlay" alt="" style="{shape_of(image)}" src="{data_url(Image.fromarray(pixels), "PNG")}">'


def captions_html(answers: Sequence[dict[str, Any]], overlay: Callable[[np.ndarray], str]) -> str:
    """Returns the captions of all beams, the best first; each word has an overlay with its attention."""
    captions = []
    for number, answer in enumerate(answers):
        spans = []
        for place, (word, weights) in enumerate(zip(answer["words"], answer["attention"], strict=True)):
            more = ""
            if "visualness" in answer:
                value = answer["visualness"][place][1]
                more = f' title="visualness {value:.2f}" style="border-color: rgba(0, 110, 180, {value:.2f})"'
            spans.append(f'<span class="word" tabindex="0"{more}>{html.escape(word)}{overlay(weights)}</span>')
        kind = "other" if number else "best"
        captions.append(f'<p class="caption {kind}" dir="auto">{" ".join(spans) or "(no words)"}</p>')
    return "".join(captions)


def viewer(stage: str, text: str, *notes: str, kind: str = "") -> str:
    """Returns a picture with captions and notes below it, or next to it for the kind `wide`."""
    shown = "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes)
    return f'<div class="viewer {kind}">{stage}<div class="text">{text}{shown}</div></div>'


def photograph_with_captions(image: Image.Image, answers: Sequence[dict[str, Any]]) -> str:
    """Returns an upright photograph with captions; `answers` come from the pipeline with `return_attention`."""
    notes = []
    if "confidence" in answers[0]:
        unlike = " The photograph differs from the training photographs." if answers[0]["unlike_training"] else ""
        notes.append(f"Confidence of the first caption: {answers[0]['confidence']:.0%}.{unlike}")
    notes.append("Tap a word, point at it or press Tab to see its attention map.")
    if "visualness" in answers[0]:
        notes.append("A darker line under a word means that it depends more on the image than on language.")
    stage = f'<img class="stage" alt="photograph" style="{shape_of(image)}" src="{photograph_url(image)}">'
    return viewer(stage, captions_html(answers, partial(map_over, image)), *notes)


def svg(kind: str, style: str, content: str) -> str:
    return f'<svg class="{kind}" viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" style="{style}">{content}</svg>'


def rectangle(box: Sequence[float], attributes: str) -> str:
    x, y, right, bottom = box
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{right - x:.2f}" height="{bottom - y:.2f}" {attributes}/>'


def look_of(name: str, box: Sequence[float]) -> str:
    """Returns the drawing of an object of a synthetic scene, or a filled box with a name."""
    colour, _, shape = name.partition(" ")
    if colour in PAINT:
        points = " ".join(f"{x:.2f},{y:.2f}" for x, y in outline(shape, box))
        return f'<polygon points="{points}" fill="{PAINT[colour]}" stroke="{BACKGROUND}" stroke-width="0.8"/>'
    text = f'<text x="{box[0] + 0.7:.2f}" y="{box[1] + 3.4:.2f}">{html.escape(name)}</text>'
    return rectangle(box, 'fill="#7a93ad" opacity="0.25"') + text


def drawing(names: Sequence[str], boxes: np.ndarray, chosen: int, weights: np.ndarray, shape: str) -> str:
    """Draws regions, and lines from the chosen region to the others, as thick as its attention to them is large."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    parts, centres = [], SIDE * (boxes[:, :2] + boxes[:, 2:]) / 2
    for index in np.argsort(-areas).tolist():
        box = x, y, right, bottom = (SIDE * boxes[index].astype(float)).tolist()
        size = f'class="box" data-width="{right - x:.2f}" data-height="{bottom - y:.2f}"'
        corner = rectangle((right - 1.5, bottom - 1.5, right + 1.5, bottom + 1.5), 'class="corner"')
        parts.append(
            f'<g class="region{" chosen" if index == chosen else ""}" tabindex="0" data-index="{index}">'
            f"<title>{html.escape(names[index])}</title>{look_of(names[index], box)}"
            f"{rectangle(box, size)}{corner}</g>"
        )
    parts += [
        f'<line x1="{centres[chosen, 0]:.2f}" y1="{centres[chosen, 1]:.2f}" x2="{x:.2f}" y2="{y:.2f}" '
        f'stroke="{COLOUR}" stroke-width="{MAX_THICKNESS * float(weight):.2f}" opacity="0.7" pointer-events="none"/>'
        for index, ((x, y), weight) in enumerate(zip(centres, weights[chosen], strict=True))
        if index != chosen
    ]
    return svg("stage drawing", f"{shape}; background: {BACKGROUND}", "".join(parts))


def regions_over(boxes: np.ndarray, weights: np.ndarray, shape: str) -> str:
    """Returns regions with the attention weights `(N,)` of a word as an overlay for their drawing."""
    opacities = STRONGEST * weights / max(float(weights.max()), NO_WEIGHT)
    parts = [
        rectangle(box, f'fill="{COLOUR}" opacity="{opacity:.2f}"')
        for box, opacity in zip((SIDE * boxes).tolist(), opacities.tolist(), strict=True)
    ]
    return svg("overlay", shape, "".join(parts))


def table_of(names: Sequence[str], chosen: int, weights: np.ndarray, before: np.ndarray) -> str:
    """Returns a sorted table of the attention of the chosen region to each region, now and before the move."""
    rows = [f"<tr><th>the {html.escape(names[chosen])} attends to</th><th>weight</th><th>change</th></tr>"]
    for index in np.argsort(-weights[chosen]).tolist():
        now, change = weights[chosen, index], weights[chosen, index] - before[chosen, index]
        name = "itself" if index == chosen else names[index]
        rows.append(f"<tr><td>{html.escape(name)}</td><td>{now:.3f}</td><td>{change:+.3f}</td></tr>")
    return f'<table class="weights">{"".join(rows)}</table>'

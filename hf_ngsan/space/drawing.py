"""What the page draws, as HTML: captions with attention maps, and regions that a user drags with the attention to them.

A word under the pointer or the keyboard's focus shows its attention map.
"""

import base64
import html
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..data.scenes import BACKGROUND, PAINT, outline

SHOWN_SIDE, MAP_SIDE = 768, 128
"""Longest sides in pixels of a photograph on the page, and of attention maps, which the browser enlarges."""
MAP_COLOUR = (255, 106, 0)
STRONGEST = 0.8
"""Opacity of a map at its largest weight."""
SIDE = 100
"""Width and height of a drawing in its own units; boxes within [0, 1] are stretched to the shape of the image."""
MAX_THICKNESS = 4
COLOUR = "rgb({}, {}, {})".format(*MAP_COLOUR)
CAPTION_STYLE, REGION_STYLE, REGION_SCRIPT = (
    Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("captions.css", "drawing.css", "drawing.js")
)


def data_url(image: Image.Image, file_format: str) -> str:
    file = io.BytesIO()
    image.save(file, file_format, **({"quality": 88} if file_format == "JPEG" else {}))
    return f"data:image/{file_format.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def photograph(image: Image.Image) -> str:
    """Returns the image above captions and under maps."""
    shown = image.convert("RGB")
    shown.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
    return f'<img class="stage" alt="photograph" style="{shape_of(image)}" src="{data_url(shown, "JPEG")}">'


def shape_of(image: Image.Image) -> str:
    return f"aspect-ratio: {image.width} / {image.height}; --ratio: {image.width / image.height:.4f}"


def map_over(image: Image.Image, weights: np.ndarray) -> str:
    """Returns the map `(height, width)` of a word as an overlay of a photograph of any size."""
    opacity = weights / max(float(weights.max()), 1e-12) * STRONGEST
    pixels = np.empty((*weights.shape, 4), dtype=np.uint8)
    pixels[..., :3] = MAP_COLOUR
    pixels[..., 3] = np.round(255 * opacity)
    return f'<img class="overlay" alt="" style="{shape_of(image)}" src="{data_url(Image.fromarray(pixels), "PNG")}">'


def caption(words: Sequence[str], overlays: Sequence[str], visualness: Sequence[float] | None, kind: str = "") -> str:
    """Returns a caption, each word with its overlay; visualness in [0, 1] underlines words, more visual ones darker."""
    spans = []
    for position, (word, overlay) in enumerate(zip(words, overlays, strict=True)):
        more = ""
        if visualness is not None:
            value = visualness[position]
            more = f' title="visualness {value:.2f}" style="border-color: rgba(0, 110, 180, {value:.2f})"'
        spans.append(f'<span class="word" tabindex="0"{more}>{html.escape(word)}{overlay}</span>')
    return f'<p class="caption {kind}">{" ".join(spans) or "(no words)"}</p>'


def captions_of(answers: Sequence[dict[str, Any]], overlay: Callable[[np.ndarray], str]) -> list[str]:
    """Returns the captions of all beams, the best first; `overlay` turns the attention of a word into its overlay."""
    found = []
    for number, answer in enumerate(answers):
        pairs = answer.get("visualness")
        visualness = None if pairs is None else [value for _, value in pairs]
        overlays = [overlay(weights) for weights in answer["attention"]]
        found.append(caption(answer["words"], overlays, visualness, "other" if number else "best"))
    return found


def viewer(stage: str, parts: Sequence[str], *notes: str, kind: str = "") -> str:
    """Returns a picture with captions and notes below it, or beside it for the kind `wide`."""
    text = "".join([*parts, *(f'<p class="note">{html.escape(note)}</p>' for note in notes)])
    return f'<div class="viewer {kind}">{stage}<div class="text">{text}</div></div>'


def photograph_with_captions(image: Image.Image, answers: Sequence[dict[str, Any]]) -> str:
    """Returns an upright photograph with captions; `answers` are those of the pipeline with `return_attention`."""
    notes = []
    if "confidence" in answers[0]:
        unlike = " The photograph is unlike those it learnt from." if answers[0]["unlike_training"] else ""
        notes.append(f"The captioner is {answers[0]['confidence']:.0%} sure of the first caption.{unlike}")
    notes.append("Tap a word, point at it, or press Tab, to see where the captioner looked for it.")
    if "visualness" in answers[0]:
        notes.append("The darker the line under a word, the more it comes from the image rather than from language.")
    return viewer(photograph(image), captions_of(answers, partial(map_over, image)), *notes)


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

"""Captions as HTML: a word under the pointer or the keyboard's focus shows its attention map."""

import base64
import html
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SHOWN_SIDE, MAP_SIDE = 768, 128
"""Longest sides in pixels of a photograph on the page, and of attention maps, which the browser enlarges."""
MAP_COLOUR = (255, 106, 0)
STRONGEST = 0.8
"""Opacity of a map at its largest weight."""

STYLE = Path(__file__).with_name("captions.css").read_text(encoding="utf-8")


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

"""Captions as HTML: words that cannot break out of it, and maps whose opacity is the attention."""

import base64
import io
import re

import numpy as np
from PIL import Image

from hf_ngsan.space import drawing


def image_in(html: str, kind: str) -> Image.Image:
    [content] = re.findall(rf"data:image/{kind};base64,([^\"]+)", html)
    return Image.open(io.BytesIO(base64.b64decode(content)))


def test_a_map_is_as_opaque_as_the_attention():
    weights = np.array([[0.0, 0.1], [0.2, 0.4]], np.float32)
    pixels = np.asarray(image_in(drawing.map_over(Image.new("RGB", (40, 20)), weights), "png"))
    assert pixels.shape == (2, 2, 4)
    np.testing.assert_allclose(pixels[..., 3] / 255, drawing.STRONGEST * weights / 0.4, atol=1 / 255)


def test_a_photograph_is_made_smaller_and_keeps_its_shape():
    html = drawing.photograph(Image.new("RGB", (1600, 800)))
    assert image_in(html, "jpeg").size == (drawing.SHOWN_SIDE, drawing.SHOWN_SIDE // 2)
    assert "aspect-ratio: 1600 / 800" in html


def test_words_are_text_and_not_html():
    html = drawing.caption(["<b>", "a&b"], ["", ""], None)
    assert "<b>" not in html and "&lt;b&gt;" in html and "a&amp;b" in html


def test_every_beam_is_shown_with_a_map_for_each_word():
    answers = [
        {"words": ["a", "dog"], "attention": np.ones((2, 3, 3), np.float32)},
        {"words": ["dogs"], "attention": np.ones((1, 3, 3), np.float32)},
        {"words": [], "attention": np.ones((0, 3, 3), np.float32)},
    ]
    html = drawing.photograph_with_captions(Image.new("RGB", (8, 8)), answers)
    assert html.count('class="overlay"') == 3 and html.count('class="caption best"') == 1
    assert html.count('class="caption other"') == 2

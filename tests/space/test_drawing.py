"""What the page draws: words that are escaped in its HTML, and maps as opaque as the attention."""

import base64
import io
import re

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the extra demo is not installed")
pytest.importorskip("gradio", reason="the extra demo is not installed")

from PIL import Image

from hf_ngsan.io import packaged
from hf_ngsan.space import drawing, page


def image_in(html: str, kind: str) -> Image.Image:
    [content] = re.findall(rf"data:image/{kind};base64,([^\"]+)", html)
    return Image.open(io.BytesIO(base64.b64decode(content)))


def beams(*captions: list[str], **more) -> list[dict]:
    return [{"words": words, "attention": np.ones((len(words), 3, 3), np.float32), **more} for words in captions]


def test_a_map_is_as_opaque_as_the_attention():
    for weights in (np.array([[0.0, 0.1], [0.2, 0.4]], np.float32), np.zeros((3, 3), np.float32)):
        pixels = np.asarray(image_in(drawing.map_over(Image.new("RGB", (40, 20)), weights), "png"))
        expected = drawing.STRONGEST * weights / max(weights.max(), 1e-9)
        np.testing.assert_allclose(pixels[..., 3] / 255, expected, atol=1 / 255)


def test_every_beam_is_shown_below_a_smaller_photograph_with_a_map_for_each_word():
    html = drawing.photograph_with_captions(Image.new("RGB", (1600, 800)), beams(["a", "dog"], ["dogs"], []))
    assert html.count('class="overlay"') == 3 and html.count('class="caption best"') == 1
    assert html.count('class="caption other"') == 2
    assert image_in(html, "jpeg").size == (drawing.SHOWN_SIDE, drawing.SHOWN_SIDE // 2)
    assert "aspect-ratio: 1600 / 800" in html
    known = beams(["a"], confidence=0.25, unlike_training=True, visualness=[("a", 0.5)])
    html = drawing.photograph_with_captions(Image.new("RGB", (16, 8)), known)
    assert "25%" in html and "differs from the training" in html and "visualness 0.50" in html


def test_words_are_text_and_the_line_under_them_is_as_dark_as_they_are_visual():
    answers = beams(["<b>", "a&b"], visualness=[("<b>", 0.25), ("a&b", 0.75)])
    html = drawing.captions_html(answers, lambda weights: "")
    assert "<b>" not in html and "&lt;b&gt;" in html and "a&amp;b" in html
    assert re.findall(r"rgba\(0, 110, 180, ([\d.]+)\)", html) == ["0.25", "0.75"]


def test_each_example_is_a_picture_of_its_own_in_a_button(monkeypatch):
    images = page.example_images()
    assert list(images) == [*page.EXAMPLES, "synthetic scene"]
    shown = [image_in(button, "jpeg") for button in page.example_buttons(images).split("<button")[1:]]
    assert len({image.tobytes() for image in shown}) == len(images) == 4
    assert all(max(image.size) <= drawing.SHOWN_SIDE for image in shown)
    places = {"officer": ("no_such_package", "a.jpg"), "lion": ("gradio", "no_such.jpg")}  # and no motorcycle
    monkeypatch.setattr(packaged, "PHOTOGRAPHS", places)
    assert list(page.example_images()) == ["synthetic scene"]

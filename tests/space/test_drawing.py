"""What the page draws: words that cannot break out of its HTML, maps as opaque as the attention, and contrasts."""

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


def test_words_are_text_and_the_line_under_them_is_as_dark_as_they_are_visual():
    answers = beams(["<b>", "a&b"], visualness=[("<b>", 0.25), ("a&b", 0.75)])
    html = drawing.captions_of(answers, lambda weights: "")
    assert "<b>" not in html and "&lt;b&gt;" in html and "a&amp;b" in html
    assert re.findall(r"rgba\(0, 110, 180, ([\d.]+)\)", html) == ["0.25", "0.75"]


def test_each_example_is_a_picture_of_its_own_in_a_button(monkeypatch):
    images = page.example_images()
    assert list(images) == [*page.EXAMPLES, "drawn scene"]
    shown = [image_in(button, "jpeg") for button in page.example_buttons(images).split("<button")[1:]]
    assert len({image.tobytes() for image in shown}) == len(images) == 3
    assert all(max(image.size) <= drawing.SHOWN_SIDE for image in shown)
    places = {"officer": ("no_such_package", "a.jpg"), "lion": ("gradio", "no_such.jpg")}
    monkeypatch.setattr(packaged, "PHOTOGRAPHS", places)
    assert list(page.example_images()) == ["drawn scene"]


LEAST = 4.5
CSS = page.make_theme()._get_theme_css()
NAMES = {"white": "#ffffff", "black": "#000000"}


def values(mode: str) -> dict[str, str]:
    """Returns the variables of the theme; those of the dark mode lie over those of the light one."""
    parts = re.findall(r"([^{}]+)\{([^{}]*)\}", CSS)
    found: dict[str, str] = {}
    for wanted in ("light", mode):
        for selector, body in parts:
            if (".dark" in selector) == (wanted == "dark"):
                found |= {name: value.strip() for name, value in re.findall(r"--([\w-]+):\s*([^;]+);", body)}
    return found


def colour(name: str, mode: str) -> list[float]:
    variables, value = values(mode), name
    while not value.startswith("#"):
        value = NAMES.get(value) or variables[value.removeprefix("var(--").rstrip(")")]
    return [int(value[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def luminance(channels: list[float]) -> float:
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(text: list[float], behind: list[float]) -> float:
    """The ratio of WCAG 2."""
    darker, lighter = sorted((luminance(text), luminance(behind)))
    return (lighter + 0.05) / (darker + 0.05)


PAIRS = {
    "hints": ("block-info-text-color", "block-background-fill"),
    "limits of sliders": ("body-text-color-subdued", "block-background-fill"),
    "titles": ("block-title-text-color", "block-background-fill"),
    "labels": ("block-label-text-color", "block-label-background-fill"),
    "examples in fields": ("input-placeholder-color", "input-background-fill"),
    "tabs": ("body-text-color", "body-background-fill"),
    "main buttons": ("button-primary-text-color", "button-primary-background-fill"),
    "main buttons under the pointer": ("button-primary-text-color-hover", "button-primary-background-fill-hover"),
    "other buttons": ("button-secondary-text-color", "button-secondary-background-fill"),
    "other buttons under the pointer": ("button-secondary-text-color-hover", "button-secondary-background-fill-hover"),
}


def test_text_stands_out_in_light_and_dark_mode():
    for mode in ("light", "dark"):
        for text, behind in PAIRS.values():
            assert contrast(colour(f"var(--{text})", mode), colour(f"var(--{behind})", mode)) >= LEAST, (text, mode)
        text, behind = (colour(f"var(--body-{name})", mode) for name in ("text-color", "background-fill"))
        for kind in ("other", "note"):  # captions and notes, which are less opaque
            opacity = float(re.search(rf"\.{kind} {{[^}}]*opacity: ([\d.]+)", drawing.CAPTION_STYLE)[1])
            mixed = [opacity * front + (1 - opacity) * back for front, back in zip(text, behind, strict=True)]
            assert contrast(mixed, behind) >= LEAST, (kind, mode)
    style = re.search(r"\.word:hover[^{]*\{ background: (#\w+); color: #(\w)(\w)(\w);", drawing.CAPTION_STYLE)
    assert contrast(colour(f"#{2 * style[2]}{2 * style[3]}{2 * style[4]}", "light"), colour(style[1], "light")) >= LEAST

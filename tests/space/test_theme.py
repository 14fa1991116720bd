"""Contrasts of the page, computed from the values of its theme and styles, in light and dark mode."""

import re

import pytest

pytest.importorskip("gradio", reason="the extra demo is not installed")

from hf_ngsan.space.drawing import CAPTION_STYLE
from hf_ngsan.space.page import make_theme
from tests.tables import each_row

LEAST = 4.5
CSS = make_theme()._get_theme_css()
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
    "examples in fields": ("input-placeholder-color", "input-background-fill"),
    "main buttons": ("button-primary-text-color", "button-primary-background-fill"),
    "main buttons under the pointer": ("button-primary-text-color-hover", "button-primary-background-fill-hover"),
    "other buttons": ("button-secondary-text-color", "button-secondary-background-fill"),
}


@each_row("mode", ["light", "dark"])
@each_row("pair", PAIRS)
def test_text_stands_out(pair, mode):
    text, behind = PAIRS[pair]
    assert contrast(colour(f"var(--{text})", mode), colour(f"var(--{behind})", mode)) >= LEAST


@each_row("mode", ["light", "dark"])
@each_row("part", ["other", "note"])
def test_captions_and_notes_that_are_less_opaque_stand_out(part, mode):
    opacity = float(re.search(rf"\.{part} {{[^}}]*opacity: ([\d.]+)", CAPTION_STYLE)[1])
    behind = colour("var(--body-background-fill)", mode)
    text = colour("var(--body-text-color)", mode)
    mixed = [opacity * one + (1 - opacity) * other for one, other in zip(text, behind, strict=True)]
    assert contrast(mixed, behind) >= LEAST


def test_words_under_the_pointer_stand_out():
    style = re.search(r"\.word:hover[^{]*\{ background: (#\w+); color: #(\w)(\w)(\w);", CAPTION_STYLE)
    assert contrast(colour(f"#{2 * style[2]}{2 * style[3]}{2 * style[4]}", "light"), colour(style[1], "light")) >= LEAST

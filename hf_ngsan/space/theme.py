"""Colours of the page: text of every kind stands out from what is behind it by at least 4.5 to 1, as WCAG 2 asks."""

import gradio

STYLE = """
.gradio-container button[role="tab"].selected { color: var(--body-text-color); font-weight: 600; }
.gradio-container:has(#captions .stage) #photo { display: none; }
.gradio-container:not(:has(#captions .stage)) #another { display: none; }
"""
"""The tab that is chosen is told by its line; a photograph with captions is not shown a second time in its box."""


def make_theme() -> gradio.themes.Base:
    theme = gradio.themes.Base(primary_hue="orange", font=["system-ui", "sans-serif"], font_mono=["monospace"])
    return theme.set(
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_title_text_color="*neutral_600",
        block_label_text_color="*neutral_600",
        input_placeholder_color="*neutral_600",
        input_placeholder_color_dark="*neutral_300",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover_dark="*primary_800",
        button_primary_border_color="*primary_700",
        button_primary_border_color_dark="*primary_700",
    )

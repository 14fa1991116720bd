"""The web page, made with Gradio."""

import io
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import gradio
from PIL import Image

from ..messages import one_sentence
from . import captions, drawing, regions
from .parts import Parts, Search

MOST_BEAMS, BEAMS = 8, 3
LARGEST_UPLOAD = "30mb"
KEPT_SECONDS = 3600
"""Uploads are deleted after this time."""


def in_words(work: Callable) -> Callable:
    """Shows errors of the input as a sentence on the page."""

    @wraps(work)
    def guarded(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except (ValueError, OSError) as error:
            raise gradio.Error(f"{one_sentence(error)}.", print_exception=False) from None

    return guarded


def make_page(parts: Parts) -> gradio.Blocks:
    """Makes the page: a tab each for photographs, for regions that can be dragged, and for search, as there are parts.

    Args:
        parts: see [`~hf_ngsan.space.load_parts`].
    """
    with gradio.Blocks(title="hf-ngsan", analytics_enabled=False, delete_cache=(KEPT_SECONDS, KEPT_SECONDS)) as page:
        gradio.Markdown(f"# Captions that know geometry\n`{parts.name}`, by hf-ngsan")
        if parts.reads_images:
            with gradio.Tab("Photograph", id="photograph"):
                add_photograph(parts)
        if parts.rows is not None:
            with gradio.Tab("Regions", id="regions"):
                add_regions(parts, page)
        if parts.search is not None:
            with gradio.Tab("Search", id="search"):
                add_search(parts.search)
    return page


def beams_slider() -> gradio.Slider:
    return gradio.Slider(1, MOST_BEAMS, BEAMS, step=1, label="Beams", info="captions compared; all are shown")


def add_photograph(parts: Parts) -> None:
    with gradio.Row():
        with gradio.Column():
            image = gradio.Image(type="pil", sources=["upload", "clipboard"], label="Photograph", buttons=[])
            num_beams = beams_slider()
            button = gradio.Button("Caption", variant="primary", elem_id="caption")
        with gradio.Column():
            shown = gradio.HTML(css_template=captions.STYLE, js_on_load=None, elem_id="captions")

    @in_words
    def caption(image: Image.Image | None, num_beams: int) -> str:
        if image is None:
            raise ValueError("There is no photograph; drop one into the box first")
        answers = parts.captions(image, num_beams, attention_side=captions.MAP_SIDE)
        return captions.photograph_with_captions(image, answers)

    button.click(caption, [image, num_beams], shown, api_name="caption")


def add_regions(parts: Parts, page: gradio.Blocks) -> None:
    rows: Any = parts.rows
    with gradio.Row():
        number = gradio.Number(0, label="Example", info=f"0 to {len(rows) - 1}", precision=0, elem_id="example")
        num_beams = beams_slider()
        button = gradio.Button("Show the example", elem_id="show")
    state = gradio.State()
    shown = gradio.HTML(
        css_template=captions.STYLE + drawing.STYLE, js_on_load=drawing.SCRIPT, elem_id="regions", min_height=200
    )

    @in_words
    def begin(number: int, num_beams: int) -> tuple[str, dict]:
        if number is None or not 0 <= number < len(rows):
            raise ValueError(f"There is no example {number}; give a number from 0 to {len(rows) - 1}")
        example, chosen = regions.Regions(parts, rows[int(number)]), 0
        state = {"number": int(number), "boxes": example.boxes, "chosen": chosen}
        state |= {"before": example.attention, "weights": example.attention}
        return example.html(chosen, example.attention, num_beams), state

    @in_words
    def move(state: dict, num_beams: int, event: gradio.EventData) -> tuple[str, dict]:
        boxes, chosen, before = regions.moved(state["boxes"], event._data), event._data["index"], state["weights"]
        example = regions.Regions(parts, rows[state["number"]], boxes)
        state = {**state, "boxes": boxes, "chosen": chosen, "before": before, "weights": example.attention}
        return example.html(chosen, before, num_beams), state

    @in_words
    def show_again(state: dict, num_beams: int) -> str:
        example = regions.Regions(parts, rows[state["number"]], state["boxes"])
        return example.html(state["chosen"], state["before"], num_beams)

    for event in (page.load, number.submit, button.click):
        event(begin, [number, num_beams], [shown, state], api_visibility="private")
    num_beams.release(show_again, [state, num_beams], shown, api_visibility="private")
    shown.release(move, [state, num_beams], [shown, state], api_visibility="private")


def add_search(search: Search) -> None:
    with gradio.Row():
        text = gradio.Textbox(label="What to look for", placeholder="a dog jumps over a log", elem_id="query", scale=4)
        button = gradio.Button("Search", variant="primary", elem_id="search", scale=1)
    found = gradio.Gallery(label="Images, the best first", columns=3, object_fit="contain", buttons=[], elem_id="hits")
    names = gradio.Dataframe(headers=["similarity", "name"], interactive=False, show_label=False)

    @in_words
    def find(text: str) -> tuple[list, list]:
        if not text.strip():
            raise ValueError("There are no words to look for; write some first")
        hits = search.find(text)
        stored = [(search.index.thumbnail_at(hit.place), f"{hit.score:.3f}  {Path(hit.name).name}") for hit in hits]
        images = [(Image.open(io.BytesIO(thumbnail)), label) for thumbnail, label in stored if thumbnail is not None]
        return images, [[round(hit.score, 4), hit.name] for hit in hits]

    for event in (text.submit, button.click):
        event(find, text, [found, names], api_visibility="private")


def launch(page: gradio.Blocks, host: str = "127.0.0.1", port: int | None = None, open_browser: bool = False) -> str:
    """Serves the page in background threads: no share link, no fonts or scripts of other servers.

    Args:
        page: of [`make_page`].
        host, port: where to listen; the first free port from 7860 if it is None.
        open_browser: show it in the user's browser.

    Returns:
        Its URL. `page.close()` ends it.

    Raises:
        OSError: the port is taken.
    """
    _, url, _ = page.launch(
        server_name=host,
        server_port=port,
        inbrowser=open_browser,
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        footer_links=[],
        ssr_mode=False,
        enable_monitoring=False,
        max_file_size=LARGEST_UPLOAD,
        theme=gradio.themes.Base(primary_hue="orange", font=["system-ui", "sans-serif"], font_mono=["monospace"]),
    )
    return url

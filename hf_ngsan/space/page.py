"""The web page, with tabs for photographs, regions and search."""

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gradio
from gradio.routes import ORJSONResponse
from PIL import Image
from starlette.middleware import Middleware

from ..data.scenes import draw_scene, make_scene
from ..io.packaged import installed_photographs, licence_of
from ..models.images import load_image
from ..serving.hosts import OwnHosts, host_name, listen
from ..serving.requests import size_of
from ..sharing.cards import code
from . import drawing
from .guard import Gate, Page, PageServer
from .parts import Parts, Regions, Search, moved

MAX_BEAMS, BEAMS = 8, 3
MAX_QUERY, MAX_PHOTOGRAPHS = 1000, 100
"""Maximal characters of a query, and photographs that are searched together."""
SHOWN_SIDE = 320
"""Longest side in pixels of a photograph among those that are found."""
MAX_WAITING = 100
"""Maximal waiting events; one of each kind runs at a time."""
MAX_UPLOAD = "30mb"
KEPT_SECONDS = 3600
"""Uploads are deleted after this time."""
COMING = "<p>The photograph with its captions appears here.</p>"
UPLOADED_EXAMPLE = "() => JSON.parse(document.querySelector('[data-upload]').dataset.upload)"
EXAMPLES = ("motorcycle", "officer", "lion")
"""Photographs that packages bring, to click on; the page opens with the first."""
SCENE_SEED = 3
STYLE, EXAMPLES_STYLE, EXAMPLES_SCRIPT = (
    Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("page.css", "examples.css", "examples.js")
)


PRIVATE: dict[str, Any] = {"api_visibility": "private", "preprocess": False}
"""Of events: not in the page's API, and with uploads as files; Gradio itself would decode them, in any format."""


def make_page(parts: Parts) -> Page:
    """Makes the page, with a tab for each available part: photographs, regions to drag, and search."""
    with Page(title="hf-ngsan", analytics_enabled=False, delete_cache=(KEPT_SECONDS, KEPT_SECONDS)) as page:
        licence = licence_of(parts.pipeline.model.config)
        terms = f"; its weights are under {code(licence.license_name or licence.license)}" if licence else ""
        does = "Caption photographs and find them by words" if parts.reads_images else "Caption regions, and move them"
        gradio.Markdown(f"# {does}\n`{parts.name}`, by hf-ngsan{terms}")
        if parts.reads_images:
            with gradio.Tab("Photograph", id="photograph"):
                add_photograph(parts)
        if parts.rows is not None:
            with gradio.Tab("Regions", id="regions"):
                add_regions(parts, page)
        if parts.search is not None:
            with gradio.Tab("Search", id="search"):
                (add_photograph_search if parts.search.index is None else add_search)(parts.search)
    page.queue(max_size=MAX_WAITING, api_open=False)
    return page


def add_beams() -> gradio.Slider:
    hint = "captions compared; all are shown"
    return gradio.Slider(1, MAX_BEAMS, BEAMS, step=1, label="Beams", info=hint, min_width=220)


def whole_number(value: Any, name: str, smallest: int, largest: int) -> int:
    """Returns a number of a request; raises a ValueError unless it is whole and within bounds."""
    if value not in range(smallest, largest + 1):
        raise ValueError(f"{name} is {value!r:.40}; it must be a whole number from {smallest} to {largest}")
    return int(value)


def add_photograph(parts: Parts) -> None:
    pictures = example_images()
    first = next(iter(pictures.values()))
    sample = drawing.photograph_with_captions(first, parts.captions(first, BEAMS))
    with gradio.Row():
        with gradio.Column(scale=2, min_width=300):
            invitation = "Drop a photograph here, or tap to choose one.\nIts captions appear by themselves."
            sources: Any = ["upload", "clipboard"]
            image = gradio.Image(
                sources=sources, label="Photograph", buttons=[], placeholder=invitation, height=280, elem_id="photo"
            )
            another = gradio.Button("Another photograph", elem_id="another")
            look: Any = {"css_template": EXAMPLES_STYLE, "js_on_load": EXAMPLES_SCRIPT, "padding": False}
            chosen = gradio.HTML(example_buttons(pictures), elem_id="examples", **look)
        with gradio.Column(scale=3, min_width=300):
            look = {"css_template": drawing.CAPTION_STYLE, "js_on_load": None, "padding": False}
            gradio.HTML(f"<p>An example. Yours will be here.</p>{sample}", elem_id="sample", **look)
            shown = gradio.HTML(elem_id="captions", **look)
            with gradio.Row(equal_height=True):
                num_beams = add_beams()
                button = gradio.Button("Caption again", elem_id="caption", min_width=170, scale=0)

    def caption(image: dict | None, num_beams: Any) -> str:
        if not isinstance(image, dict):
            raise ValueError("There is no photograph; drop one into the box first, or tap it to choose one")
        beams = whole_number(num_beams, "Beams", 1, MAX_BEAMS)
        photograph = uploaded_image(image["path"], "the photograph")
        return drawing.photograph_with_captions(photograph, parts.captions(photograph, beams))

    triggers: list[Any] = [image.upload, button.click]
    gradio.on(triggers, caption, [image, num_beams], shown, api_name="caption", preprocess=False)
    image.change(None, image, shown, js=f"image => image ? {json.dumps(COMING)} : ''", api_visibility="private")
    another.click(None, None, [image, shown], js="() => [null, '']", api_visibility="private")
    uploaded = chosen.click(None, None, image, js=UPLOADED_EXAMPLE, api_visibility="private")
    uploaded.then(caption, [image, num_beams], shown, **PRIVATE)


def example_images() -> dict[str, Image.Image]:
    """Returns the pictures by what they show: photographs of installed packages, then a scene."""
    files = installed_photographs()
    found = {name: load_image(files[name].read_bytes(), name) for name in EXAMPLES if name in files}
    found["drawn scene"] = draw_scene(make_scene(SCENE_SEED), size=drawing.SHOWN_SIDE // 2)
    return found


def example_buttons(images: dict[str, Image.Image]) -> str:
    """Returns a small picture to click for each image; the script uploads it as a user uploads a photograph."""
    buttons = [
        f'<button type="button" title="{name}"><img alt="{name}" src="{drawing.photograph_url(image)}"></button>'
        for name, image in images.items()
    ]
    return f'<p class="hint">or try one of these:</p><div class="examples">{"".join(buttons)}</div>'


def uploaded_image(path: str, name: str) -> Image.Image:
    """Reads a stranger's image file; its size is checked before it is decoded."""
    content = Path(path).read_bytes()
    size_of(content, name)
    return load_image(content, name)


def add_regions(parts: Parts, page: Page) -> None:
    rows: Any = parts.rows
    gradio.Markdown("Drag an object, or its lower right corner, with mouse or finger: captions and attention follow.")
    with gradio.Row():
        number = gradio.Number(0, label="Example", info=f"0 to {len(rows) - 1}", precision=0, elem_id="example")
        num_beams = add_beams()
        button = gradio.Button("Show the example", elem_id="show", min_width=170, scale=0)
    state = gradio.State()
    look: Any = {"css_template": drawing.CAPTION_STYLE + drawing.REGION_STYLE, "js_on_load": drawing.REGION_SCRIPT}
    shown = gradio.HTML(elem_id="regions", min_height=200, **look)

    def show(example: Regions, chosen: int, before: Regions, num_beams: Any) -> tuple[str, tuple]:
        beams = whole_number(num_beams, "Beams", 1, MAX_BEAMS)
        return example.html(chosen, before, beams), (example, chosen, before)

    def begin(number: Any, num_beams: Any) -> tuple[str, tuple]:
        example = Regions(parts, rows[whole_number(number, "Example", 0, len(rows) - 1)])
        return show(example, 0, example, num_beams)

    def move(state: tuple, num_beams: Any, event: gradio.EventData) -> tuple[str, tuple]:
        before, change = state[0], getattr(event, "_data", {})
        return show(Regions(parts, before.row, moved(before.boxes, change)), change["index"], before, num_beams)

    def show_again(state: tuple, num_beams: Any) -> tuple[str, tuple]:
        example, chosen, before = state
        return show(example, chosen, before, num_beams)

    triggers: list[Any] = [page.load, number.submit, button.click]
    gradio.on(triggers, begin, [number, num_beams], [shown, state], **PRIVATE)
    num_beams.release(show_again, [state, num_beams], [shown, state], **PRIVATE)
    shown.release(move, [state, num_beams], [shown, state], **PRIVATE)


def add_query(place: str) -> tuple[gradio.Textbox, list[Any], gradio.Gallery]:
    """Adds a field, what starts a search, and the pictures that are found; the page's style hides these before."""
    hint = f"{place}; the most similar ones appear below, with their similarity"
    example = "a dog jumps over a log"
    with gradio.Row(equal_height=True):
        text = gradio.Textbox(
            label="What to look for", info=hint, placeholder=example, elem_id="query", scale=4, min_width=260
        )
        button = gradio.Button("Search", variant="primary", elem_id="search", min_width=120, scale=0)
    gallery = gradio.Gallery(
        show_label=False, columns=3, height="auto", object_fit="contain", buttons=[], elem_id="hits"
    )
    return text, [text.submit, button.click], gallery


def add_search(search: Search) -> None:
    assert search.index is not None
    text, triggers, hits = add_query(f"in {search.index.description.num_items:,} images")
    with gradio.Accordion("Names and similarities", open=False) as listed:
        names = gradio.Dataframe(headers=["similarity", "name"], interactive=False, show_label=False, wrap=True)

    def find(text: Any) -> tuple[list, list, gradio.Accordion]:
        images, table = [], []
        found = search.find(checked_query(text))
        for hit, thumbnail in found:
            table.append([round(hit.score, 4), hit.name])
            if thumbnail is not None:
                images.append((Image.open(io.BytesIO(thumbnail)), f"{hit.score:.3f}  {Path(hit.name).name}"))
        title = search.title("Names and similarities", found[0][0].score)
        return images, table, gradio.Accordion(title, open=not images)

    gradio.on(triggers, find, text, [hits, names, listed], **PRIVATE)


def checked_query(sent: Any) -> str:
    """Returns the words of a request; raises a ValueError if there are none or too many."""
    if not isinstance(sent, str) or not sent.strip():
        raise ValueError("The search has no words; write some first")
    if len(sent) > MAX_QUERY:
        raise ValueError(f"The search has {len(sent)} characters; {MAX_QUERY} are allowed")
    return sent


def add_photograph_search(search: Search) -> None:
    """Adds a search of photographs that are uploaded; they and their embeddings stay in the session."""
    with gradio.Accordion(f"Photographs to search, at most {MAX_PHOTOGRAPHS}") as listed:
        files = gradio.File(file_count="multiple", file_types=["image"], show_label=False, height=220, elem_id="photos")
    text, triggers, gallery = add_query("among the photographs above")
    state = gradio.State({})

    def find(uploads: Any, text: Any, known: dict) -> tuple[list, dict, gradio.Accordion]:
        query = checked_query(text)
        if not isinstance(uploads, list) or not uploads:
            raise ValueError("There are no photographs; drop some into the box first, or tap it to choose them")
        if len(uploads) > MAX_PHOTOGRAPHS:
            raise ValueError(f"There are {len(uploads)} photographs; {MAX_PHOTOGRAPHS} are allowed")
        photographs = {}
        for number, path in enumerate((upload["path"] for upload in uploads), start=1):
            if path not in known:
                image = uploaded_image(path, f"photograph {number}")
                embedding = search.embed(image)
                image.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
                known = {**known, path: (image, embedding)}
            photographs[path] = known[path]
        shown, embeddings = zip(*photographs.values(), strict=True)
        scores = search.scores(query, embeddings)
        order = sorted(range(len(shown)), key=lambda place: -scores[place])
        hits = [(shown[place], f"{scores[place]:.3f}") for place in order]
        title = search.title(f"Photographs to search: {len(shown)}", float(scores.max()))
        return hits, photographs, gradio.Accordion(title, open=False)

    gradio.on(triggers, find, [files, text, state], [gallery, state, listed], **PRIVATE)


def launch(page: Page, host: str = "127.0.0.1", port: int | None = None, allowed_hosts: Iterable[str] = ()) -> str:
    """Serves the page in background threads, until `page.close()`: no share link, nothing from other servers.

    Args:
        page: page of [`make_page`].
        host, port: address to listen at; the first free port from 7860 if `port` is None.
        allowed_hosts: further names that the page answers to; see [`~hf_ngsan.serving.hosts.OwnHosts`].

    Returns:
        The URL of the page.
    """
    listen(host, port or 0).close()
    guards = [Middleware(OwnHosts, host=host, allowed=list(map(host_name, allowed_hosts))), Middleware(Gate, page=page)]
    _, url, _ = page.launch(
        server_name=f"[{host}]" if ":" in host else host,
        server_port=port,
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        footer_links=[],
        ssr_mode=False,
        enable_monitoring=False,
        max_file_size=MAX_UPLOAD,
        run_history=False,
        _app=PageServer(middleware=guards, default_response_class=ORJSONResponse),
        theme=gradio.themes.Base(primary_hue="orange", font=["system-ui", "sans-serif"], font_mono=["monospace"]),
        css=STYLE,
    )
    return url

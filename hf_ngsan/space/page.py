"""The web page, with tabs for photographs, regions and search, and its protection against forged requests."""

import io
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio
from gradio.route_utils import CustomCORSMiddleware
from gradio.routes import App, ORJSONResponse
from PIL import Image
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..data.scenes import draw_scene, make_scene
from ..io.messages import one_sentence, shortened
from ..io.packaged import installed_photographs, licence_of
from ..models.images import load_image
from ..serving.hosts import OwnHosts, host_name, listen
from ..serving.requests import size_of
from ..sharing.cards import code
from . import drawing
from .parts import Parts, Regions, Search, moved

MAX_BEAMS, BEAMS = 8, 3
MAX_QUERY, MAX_PHOTOGRAPHS = 1000, 100
"""Maximal characters of a query, and maximal number of photographs in a search."""
SHOWN_SIDE = 320
"""Longest side, in pixels, of a photograph among the results."""
MAX_WAITING = 100
"""Maximal number of waiting events; one event of each kind runs at a time."""
MAX_UPLOAD = "30mb"
KEPT_SECONDS = 3600
"""Uploads are deleted after this time."""
COMING = "<p>The photograph and its captions appear here.</p>"
UPLOADED_EXAMPLE = "() => JSON.parse(document.querySelector('[data-upload]').dataset.upload)"
EXAMPLES = ("motorcycle", "officer", "lion")
"""Example photographs from installed packages; the page opens with the first one."""
SCENE_SEED = 3
STYLE, EXAMPLES_STYLE, EXAMPLES_SCRIPT = (
    Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("page.css", "examples.css", "examples.js")
)
MAX_MESSAGE = 300
"""Maximal characters of an error, which may quote a request."""
NEEDED = re.compile(
    r"/|/(config|theme\.css|favicon\.ico|manifest\.json|robots\.txt)/?|/(assets|static|svelte)/.*"
    r"|/gradio_api/((info|app_id|user|token|login_check|startup-events|theme\.css|cancel|reset)/?"
    r"|upload|upload_progress|queue/(join|data|status)|(call|heartbeat)/.*)"
)
"""Paths of Gradio 6.31 that the page and its clients need; paths that fetch from other servers are left out."""
FILE = "/gradio_api/file="
PRIVATE: dict[str, Any] = {"api_visibility": "private", "preprocess": False}
"""Settings of events: hidden from the API, and without Gradio's preprocessing, which decodes files of any format."""


class Page(gradio.Blocks):
    """A page that reads only files that were uploaded to it, and reports each error in one sentence.

    Gradio alone checks only values that a request marks as files. It also accepts all files of a folder that all pages
    of a machine share, and it fetches URLs.
    """

    async def process_api(self, block_fn: Any, inputs: list, *arguments: Any, **more: Any) -> dict[str, Any]:
        try:
            return await super().process_api(block_fn, list(map(self.upload, inputs)), *arguments, **more)
        except Exception as error:
            raise gradio.Error(shortened(f"{one_sentence(error)}.", MAX_MESSAGE), print_exception=False) from None

    def upload(self, value: Any) -> Any:
        """Returns the uploaded file or files of a value, or a plain value; raises a ValueError for other files."""
        if isinstance(value, list):
            return [self.upload({} if isinstance(item, list) else item) for item in value]
        if not isinstance(value, dict):
            return value
        path = value.get("path")
        if not isinstance(path, str) or path not in self.upload_file_set:
            raise ValueError("The file is not a photograph that was uploaded to this page")
        return {"path": path, "meta": {"_type": "gradio.FileData"}}


class PageServer(App):
    """Gradio's application without its CORS middleware, so that pages of other origins cannot read the answers."""

    def add_middleware(self, middleware_class: Any, *arguments: Any, **more: Any) -> None:
        if middleware_class is not CustomCORSMiddleware:
            super().add_middleware(middleware_class, *arguments, **more)


class Gate:
    """Middleware: passes only paths that the page needs, and turns failures of Gradio into one sentence."""

    def __init__(self, app: ASGIApp, page: Page) -> None:
        self.app, self.page = app, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path = scope["path"]
        if path.startswith(FILE):  # only files that were uploaded to this page, or made by it
            is_known = any(path[len(FILE) :] in files for files in self.page.temp_file_sets)
        else:
            is_known = NEEDED.fullmatch(path) is not None
        if not is_known:
            return await JSONResponse({"detail": "Not Found"}, 404)(scope, receive, send)
        try:
            await self.app(scope, receive, send)
        except Exception:
            answer = JSONResponse({"error": "The page does not accept this request."}, 400)
            with suppress(RuntimeError):  # another answer has already started
                await answer(scope, receive, send)


def make_page(parts: Parts) -> Page:
    """Makes the page, with a tab for each available part: photographs, regions to drag, and search."""
    with Page(title="hf-ngsan", analytics_enabled=False, delete_cache=(KEPT_SECONDS, KEPT_SECONDS)) as page:
        licence = licence_of(parts.pipeline.model.config)
        terms = f"; license of its weights: {code(licence.license_name or licence.license)}" if licence else ""
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
    hint = "number of captions to compare; all of them are shown"
    return gradio.Slider(1, MAX_BEAMS, BEAMS, step=1, label="Beams", info=hint, min_width=220)


def whole_number(value: Any, name: str, smallest: int, largest: int) -> int:
    """Returns a number from a request; raises a ValueError unless it is an integer within bounds."""
    if value not in range(smallest, largest + 1):
        raise ValueError(f"{name} is {value!r:.40}; it must be a whole number from {smallest} to {largest}")
    return int(value)


def add_photograph(parts: Parts) -> None:
    pictures = example_images()
    first = next(iter(pictures.values()))
    sample = drawing.photograph_with_captions(first, parts.captions(first, BEAMS))
    with gradio.Row():
        with gradio.Column(scale=2, min_width=300):
            invitation = "Drop a photograph here, or tap to choose one.\nCaptions appear automatically."
            sources: Any = ["upload", "clipboard"]
            image = gradio.Image(
                sources=sources, label="Photograph", buttons=[], placeholder=invitation, height=280, elem_id="photo"
            )
            another = gradio.Button("Another photograph", elem_id="another")
            look: Any = {"css_template": EXAMPLES_STYLE, "js_on_load": EXAMPLES_SCRIPT, "padding": False}
            chosen = gradio.HTML(example_buttons(pictures), elem_id="examples", **look)
        with gradio.Column(scale=3, min_width=300):
            look = {"css_template": drawing.CAPTION_STYLE, "js_on_load": None, "padding": False}
            gradio.HTML(f"<p>Example; your photograph will replace it.</p>{sample}", elem_id="sample", **look)
            shown = gradio.HTML(elem_id="captions", **look)
            with gradio.Row(equal_height=True):
                num_beams = add_beams()
                button = gradio.Button("Caption again", elem_id="caption", min_width=170, scale=0)

    def caption(image: dict | None, num_beams: Any) -> str:
        if not isinstance(image, dict):
            raise ValueError("There is no photograph; drop one into the box first, or tap the box to choose one")
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
    """Returns example images by their subject: photographs from installed packages, then a scene."""
    files = installed_photographs()
    images = {name: load_image(files[name].read_bytes(), name) for name in EXAMPLES if name in files}
    images["synthetic scene"] = draw_scene(make_scene(SCENE_SEED), size=drawing.SHOWN_SIDE // 2)
    return images


def example_buttons(images: dict[str, Image.Image]) -> str:
    """Returns a button with a thumbnail for each image; a script uploads the image as if the user had chosen it."""
    buttons = [
        f'<button type="button" title="{name}"><img alt="{name}" src="{drawing.photograph_url(image)}"></button>'
        for name, image in images.items()
    ]
    return f'<p class="hint">or try one of these:</p><div class="examples">{"".join(buttons)}</div>'


def uploaded_image(path: str, name: str) -> Image.Image:
    """Reads an untrusted image file; its size is checked before it is decoded."""
    content = Path(path).read_bytes()
    size_of(content, name)
    return load_image(content, name)


def add_regions(parts: Parts, page: Page) -> None:
    rows: Any = parts.rows
    gradio.Markdown("Drag an object, or its lower right corner. The captions and the attention are then updated.")
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
    """Adds a text field, the triggers of a search, and a gallery of results, hidden before the first search."""
    hint = f"{place}; the most similar ones appear below, with their similarity"
    example = "a dog jumps over a log"
    with gradio.Row(equal_height=True):
        text = gradio.Textbox(
            label="Search text", info=hint, placeholder=example, elem_id="query", scale=4, min_width=260
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
        result = search.find(checked_query(text))
        for hit, thumbnail in result:
            table.append([round(hit.score, 4), hit.name])
            if thumbnail is not None:
                images.append((Image.open(io.BytesIO(thumbnail)), f"{hit.score:.3f}  {Path(hit.name).name}"))
        title = search.title("Names and similarities", result[0][0].score)
        return images, table, gradio.Accordion(title, open=not images)

    gradio.on(triggers, find, text, [hits, names, listed], **PRIVATE)


def checked_query(sent: Any) -> str:
    """Returns the query of a request; raises a ValueError if it is empty or too long."""
    if not isinstance(sent, str) or not sent.strip() or len(sent) > MAX_QUERY:
        raise ValueError(f"Write a search text of at most {MAX_QUERY} characters")
    return sent


def add_photograph_search(search: Search) -> None:
    """Adds a search of uploaded photographs; they and their embeddings are kept in the session only."""
    with gradio.Accordion(f"Photographs to search, at most {MAX_PHOTOGRAPHS}") as listed:
        files = gradio.File(file_count="multiple", file_types=["image"], show_label=False, height=220, elem_id="photos")
    text, triggers, gallery = add_query("among the photographs above")
    state = gradio.State({})

    def find(uploads: Any, text: Any, known: dict) -> tuple[list, dict, gradio.Accordion]:
        query = checked_query(text)
        if not isinstance(uploads, list) or not uploads:
            raise ValueError("There are no photographs; drop some into the box first, or tap the box to choose them")
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
    """Serves the page in background threads until `page.close()`, without a share link or files from other servers.

    Args:
        page: page made by [`make_page`].
        host, port: address to listen at; the first free port from 7860 if `port` is None.
        allowed_hosts: further host names that the page accepts; see [`~hf_ngsan.serving.hosts.OwnHosts`].

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

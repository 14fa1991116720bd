"""Protects the page against forged requests: it reads uploaded files only, and errors are one sentence."""

import re
from contextlib import suppress
from typing import Any

import gradio
from gradio.route_utils import CustomCORSMiddleware
from gradio.routes import App
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..io.messages import one_sentence, shortened

MAX_MESSAGE = 300
"""Maximal characters of an error, which may quote a request."""
NEEDED = re.compile(
    r"/|/(config|theme\.css|favicon\.ico|manifest\.json|robots\.txt)/?|/(assets|static|svelte)/.*"
    r"|/gradio_api/((info|app_id|user|token|login_check|startup-events|theme\.css|cancel|reset)/?"
    r"|upload|upload_progress|queue/(join|data|status)|(call|heartbeat)/.*)"
)
"""Paths of Gradio 6.31 that the page and its clients need; paths that fetch from other servers are left out."""
FILE = "/gradio_api/file="


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

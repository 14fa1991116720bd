"""Protection of the page against forged requests: it reads only uploaded files, and errors are one sentence."""

import logging
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import gradio
from gradio.route_utils import CustomCORSMiddleware
from gradio.routes import App
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..io.messages import one_sentence

logger = logging.getLogger(__name__)

MAX_MESSAGE = 300
"""Maximal characters of an error, which may quote a request."""
NEEDED = re.compile(
    r"/|/(config|theme\.css|favicon\.ico|manifest\.json|robots\.txt)/?|/(assets|static|svelte)/.*"
    r"|/gradio_api/((info|app_id|user|token|login_check|startup-events|theme\.css|cancel|reset)/?"
    r"|upload|upload_progress|queue/(join|data|status)|(call|heartbeat)/.*)"
)
"""Paths of Gradio 6.31 that the page and its clients need, without those that fetch from other servers."""
FILE = "/gradio_api/file="


class Page(gradio.Blocks):
    """A page that reads only files that were uploaded to it, whatever a request names.

    Gradio itself checks only values that a request marks as files, accepts all files of a folder that the pages of a
    machine share, and fetches URLs.
    """

    def has_file(self, path: str) -> bool:
        """Returns whether a file was uploaded to this page, or made by it."""
        return any(path in files for files in self.temp_file_sets)

    async def preprocess_data(self, block_fn: Any, inputs: Any, *arguments: Any, **more: Any) -> Any:
        if block_fn.fn is None:
            raise refusal("The page has no such function.")
        try:
            return await super().preprocess_data(block_fn, [self.upload(one) for one in inputs], *arguments, **more)
        except gradio.Error as error:
            error.print_exception = False
            raise
        except Exception as error:
            raise refusal(f"The page cannot take this: {one_sentence(error)}.") from None

    def upload(self, value: Any) -> Any:
        """Returns the upload of a value, those of a list, or a plain value; raises a gradio.Error for other files."""
        if isinstance(value, list):
            return [self.upload({} if isinstance(one, list) else one) for one in value]
        if not isinstance(value, dict):
            return value
        path = value.get("path")
        if not isinstance(path, str) or path not in self.upload_file_set:
            raise refusal("This is not a photograph that was uploaded here; upload one first.")
        return {"path": path, "meta": {"_type": "gradio.FileData"}}


class PageServer(App):
    """Gradio's application without its answers to other origins: no page of a stranger may read this one."""

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
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        path = scope["path"]
        is_known = self.page.has_file(path[len(FILE) :]) if path.startswith(FILE) else NEEDED.fullmatch(path)
        if not is_known:
            return await JSONResponse({"detail": "Not Found"}, 404)(scope, receive, send)
        try:
            await self.app(scope, receive, noting)
        except Exception:
            logger.debug("%s %s", scope["method"], scope["path"], exc_info=True)
            if not has_begun:
                answer = JSONResponse({"error": "The page has nothing that takes this request."}, 400)
                await answer(scope, receive, send)


def refusal(sentence: str) -> gradio.Error:
    shown = sentence if len(sentence) <= MAX_MESSAGE else f"{sentence[:MAX_MESSAGE]} …"
    return gradio.Error(shown.encode(errors="replace").decode(), print_exception=False)


def in_words(work: Callable) -> Callable:
    """Shows errors of the input as a sentence on the page."""

    @wraps(work)
    def guarded(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except (ValueError, OSError) as error:
            raise refusal(f"{one_sentence(error)}.") from None

    return guarded


def whole_number(value: Any, name: str, smallest: int, largest: int) -> int:
    """Returns a number of a request; raises a ValueError unless it is whole and within bounds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not smallest <= value <= largest or value != int(value):
        raise ValueError(f"{name} is {value!r:.40}; it must be a whole number from {smallest} to {largest}")
    return int(value)

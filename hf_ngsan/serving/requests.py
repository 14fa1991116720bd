"""Requests for captions: JSON with images in base64 or URLs, or files of a form, read within limits."""

import base64
import binascii
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from ..bounds import LONGEST_CAPTION, MOST_CAPTIONS
from ..models.downloads import DownloadError, download
from ..models.images import ImageError, load_image
from .limits import ServingLimits

OPTIONS = {"num_beams": MOST_CAPTIONS, "max_new_tokens": LONGEST_CAPTION}
"""Arguments of `generate()` that a request may give, and their largest values."""
MOST_BEAMS = 16


class RequestError(ValueError):
    """A request that is refused.

    Args:
        status: of HTTP.
        message: what is wrong.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class CaptionRequest:
    """Images, and pairs of options and values."""

    images: list
    options: tuple[tuple[str, Any], ...]


async def read_request(request: Request, limits: ServingLimits) -> CaptionRequest:
    """Returns the images and options of a request.

    Raises:
        RequestError: too many bytes or images, no image, one that cannot be read, or unknown options.
    """
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.request_bytes:
        raise too_large(limits)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        sources, options = await read_form(request, limits)
    elif kind == "application/json":
        sources, options = await read_json(request, limits)
    else:
        raise RequestError(415, "Send files as multipart/form-data, or images in base64 as application/json.")
    if not sources:
        raise RequestError(400, "The request has no images; send them as files or, in JSON, under 'images'.")
    if len(sources) > limits.images:
        raise RequestError(413, f"The request has {len(sources)} images; {limits.images} are allowed.")
    images = [await run_in_threadpool(read_image, source, place, limits) for place, source in enumerate(sources)]
    return CaptionRequest(images, checked_options(options))


async def within_limits(request: Request, limits: ServingLimits) -> AsyncGenerator[bytes, None]:
    number = 0
    async for chunk in request.stream():
        number += len(chunk)
        if number > limits.request_bytes:
            raise too_large(limits)
        yield chunk


def too_large(limits: ServingLimits) -> RequestError:
    return RequestError(413, f"The request has more than {limits.request_bytes} bytes.")


async def read_form(request: Request, limits: ServingLimits) -> tuple[list, dict]:
    parser = MultiPartParser(
        request.headers, within_limits(request, limits), max_files=limits.images, max_fields=len(OPTIONS) + 1
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        status = 413 if "Too many files" in error.message else 400
        raise RequestError(status, f"The form cannot be read: {error.message}") from error
    sources: list[Any] = []
    options: dict[str, Any] = {}
    for name, value in form.multi_items():
        if isinstance(value, str):
            options[name] = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else value
        else:
            sources.append(await value.read())
            await value.close()
    return sources, options


async def read_json(request: Request, limits: ServingLimits) -> tuple[list, dict]:
    body = b"".join([chunk async for chunk in within_limits(request, limits)])
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError(400, "The body is no JSON.") from None
    if not isinstance(sent, dict) or not isinstance(sent.get("images"), list):
        raise RequestError(400, "Send a JSON object with a list 'images'.")
    return sent.pop("images"), sent


def checked_options(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    for name, value in options.items():
        if name == "text" and isinstance(value, str):
            continue
        if name not in OPTIONS:
            raise RequestError(400, f"{name!r:.60} is no option; there are {', '.join(OPTIONS)} and text.")
        largest = MOST_BEAMS if name == "num_beams" else OPTIONS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
            raise RequestError(400, f"{name} is {value!r:.60}; it must be a whole number from 1 to {largest}.")
    return tuple(sorted(options.items()))


def read_image(source: Any, place: int, limits: ServingLimits) -> Any:
    """Returns an image of Pillow.

    Args:
        source: bytes of a file, base64, or a URL.
        place: of the image in its request, for messages.
        limits: of the request.

    Raises:
        RequestError: it is no image, or a URL that is not allowed.
    """
    name = f"image {place}"
    if isinstance(source, str):
        source = downloaded(source, name, limits) if "://" in source[:10] else decoded(source, name)
    if not isinstance(source, bytes):
        raise RequestError(400, f"{name.capitalize()} is neither base64 nor a URL.")
    if not source:
        raise RequestError(400, f"{name.capitalize()} has 0 bytes.")
    try:
        return load_image(source, name)
    except ImageError as error:
        raise RequestError(400, str(error)) from error


def decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(400, f"{name.capitalize()} is neither base64 nor a URL.") from None


def downloaded(url: str, name: str, limits: ServingLimits) -> bytes:
    if not limits.allow_urls:
        raise RequestError(400, f"{name.capitalize()} is a URL, which this server does not read; send its bytes.")
    if urlsplit(url).scheme not in ("http", "https"):
        raise RequestError(400, f"{name.capitalize()}: only http and https URLs are read.")
    try:
        return download(url, public_only=True)
    except DownloadError as error:
        raise RequestError(400, f"{name.capitalize()} cannot be downloaded: {error}.") from error

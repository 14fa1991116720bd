"""Reads requests for captions: images as form files or base64, read within limits and decoded in threads."""

import asyncio
import io
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from PIL import Image
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from ..data.images import IMAGE_FORMATS
from ..io import DEFAULT_CAPTION_LENGTH, MAX_CAPTION_LENGTH
from ..loading.pipelines import CaptioningPipeline
from ..models.images import least_side_of, load_image
from ..sharing.endpoint_handler import from_base64

T = TypeVar("T")
OPTIONS = {"num_beams": 16, "max_new_tokens": MAX_CAPTION_LENGTH}
"""Arguments of `generate()` in requests, and their maximum values."""
FREE_BYTES = 2**20
"""Bytes of a body that are always read, so that requests with usual photos do not wait for large, slow ones."""
LARGE_BODIES = 8  # bodies of maximum size that may be in memory at the same time
MAX_MARKS = 100_000
"""Maximum brackets and commas of JSON; a body of brackets alone would need thirty times its size when parsed."""
MAX_READERS = 4
MAX_ASPECT_RATIO = 100
"""Largest ratio of the long to the short side; resizing a thinner image would multiply its pixels."""
STRANGERS_FORMATS = tuple(name for name in IMAGE_FORMATS if name != "TIFF")
"""No TIFF: the entries of a file can all point to the same megabytes, and Pillow reads these for each entry."""
MAX_EXIF_BYTES = 2**16
"""Largest EXIF data that are parsed (the maximum of JPEG); EXIF entries can also point to the same bytes."""
MAX_SCANS = 100
"""Maximum scans of a JPEG file. Progressive files have about ten; even a short scan costs a pass over all pixels."""
START_OF_SCAN = b"\xff\xda"


@dataclass(frozen=True)
class ServingLimits:
    """Limits of requests, and settings of batches.

    Attributes:
        request_bytes: maximum size of the body of a request in bytes.
        images: maximum number of images per request.
        pixels: maximum number of pixels per request, and of all images that are decoded at the same time.
        cost: maximum of images x beams x tokens, per request and per batch; tokens include those of `text`.
        seconds: maximum time until the head of a request has arrived, and from then until its answer.
        connections: maximum number of open connections; more requests get status 503.
        waiting: maximum number of waiting images; more requests get status 503.
        batch_size: maximum number of images in a batch.
        wait_ms: time in milliseconds that an incomplete batch waits for another image.
    """

    request_bytes: int = 32_000_000
    images: int = 64
    pixels: int = 100_000_000
    cost: int = 8_192
    seconds: float = 60
    connections: int = 512
    waiting: int = 512
    batch_size: int = 32
    wait_ms: float = 5


class RequestError(ValueError):
    """A refused request, with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestReader:
    """Reads requests, and decodes their images into the smaller inputs of the pipeline, in separate threads."""

    def __init__(self, pipeline: CaptioningPipeline, limits: ServingLimits) -> None:
        self.pipeline, self.limits = pipeline, limits
        self.bytes_held: dict[Request, int] = {}  # beyond the bytes that are always read
        self.free_pixels, self.returned, self.turn = limits.pixels, asyncio.Event(), asyncio.Lock()
        self.threads = ThreadPoolExecutor(min(MAX_READERS, os.cpu_count() or 1), "hf_ngsan reader")

    async def in_thread(self, work: Callable[..., T], *arguments: Any, pixels: int = 0) -> T:
        """Runs work in a thread once a number of pixels is free, in the order of the calls, and returns its result.

        A thread cannot be stopped, so it keeps its pixels even after the time limit of its request.
        """
        if pixels:
            async with self.turn:
                while self.free_pixels < pixels:
                    self.returned.clear()
                    await self.returned.wait()
                self.free_pixels -= pixels
        loop = asyncio.get_running_loop()
        job = self.threads.submit(work, *arguments)
        job.add_done_callback(lambda _: loop.call_soon_threadsafe(self.give_back, pixels))
        return await asyncio.wrap_future(job)

    def give_back(self, pixels: int) -> None:
        self.free_pixels += pixels
        self.returned.set()

    async def read(self, request: Request) -> tuple[list, tuple[tuple[str, Any], ...], int]:
        """Returns the images of a request as inputs of the pipeline, its options and the cost of each image."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if kind == "multipart/form-data":
                sources, options = await self.read_form(request)
            elif kind == "application/json":
                sources, options = await self.read_json(request)
            else:
                raise RequestError(415, "Send files as multipart/form-data, or base64 images as application/json.")
            if not sources:
                raise RequestError(400, "The request has no images; send them as files or, in JSON, under 'images'.")
            if len(sources) > self.limits.images:
                raise RequestError(413, f"The request has {len(sources)} images; {self.limits.images} are allowed.")
            check_options(options)
            cost = await self.in_thread(self.cost_of_image, options)
            if len(sources) * cost > self.limits.cost:
                product = f"{len(sources)} x {cost} images x beams x tokens"
                raise RequestError(413, f"The request needs {product}; {self.limits.cost} are allowed.")
            images = await self.read_images(sources, options.get("text", ""))
            return images, tuple(sorted(options.items())), cost
        finally:
            self.bytes_held.pop(request, None)

    async def body(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Yields the body of a request in chunks, within the limits per request and for all requests being read."""
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            self.bytes_held[request] = max(0, size - FREE_BYTES)
            if size > self.limits.request_bytes:
                raise RequestError(413, f"The request has more than {self.limits.request_bytes} bytes.")
            if sum(self.bytes_held.values()) > LARGE_BODIES * self.limits.request_bytes:
                raise RequestError(503, "The server is busy with other large requests.")
            yield chunk

    async def read_form(self, request: Request) -> tuple[list, dict]:
        parser = MultiPartParser(request.headers, self.body(request))
        # keeps files in memory: the number of open files of a process is limited
        parser.spool_max_size = self.limits.request_bytes
        try:
            form = await parser.parse()
        except MultiPartException as error:
            raise RequestError(400, f"The form cannot be read: {error.message.rstrip('.')}.") from error
        files = [value for _, value in form.multi_items() if not isinstance(value, str)]
        options = {name: value for name, value in form.multi_items() if isinstance(value, str)}
        for name in options.keys() - {"text"}:
            with suppress(ValueError, RecursionError):
                options[name] = json.loads(options[name])
        return [await file.read() for file in files], options

    async def read_json(self, request: Request) -> tuple[list, dict]:
        content = b"".join([chunk async for chunk in self.body(request)])
        if sum(content.count(mark) for mark in (b",", b"[", b"{")) > MAX_MARKS:
            raise RequestError(413, f"The body has more than {MAX_MARKS} values.")
        try:
            options = await self.in_thread(json.loads, content)
            images = options.pop("images")
            if not isinstance(images, list):
                raise TypeError
            return images, options
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            raise RequestError(400, "Send a JSON object with a list 'images'.") from None

    def cost_of_image(self, options: Mapping[str, Any]) -> int:
        """Returns beams x tokens; refuses an impossible prefix of captions, or too many tokens after it."""
        reader, text, usual = self.pipeline.reader(), options.get("text", ""), self.pipeline.model.generation_config
        reader.check_prefix(text, "The text")
        words, asked = reader.number_of_words(text), options.get("max_new_tokens")
        beams = max(options.get("num_beams") or usual.num_beams or 1, usual.num_return_sequences or 1)
        tokens = asked or usual.max_new_tokens or usual.max_length or DEFAULT_CAPTION_LENGTH
        room = getattr(self.pipeline.model.config, "max_position_embeddings", MAX_CAPTION_LENGTH) - 1 - words
        if tokens > room and (asked or words):
            asked = f"max_new_tokens is {tokens}, after {words} words of text"
            raise RequestError(400, f"{asked}; this captioner can then generate at most {room}.")
        passes = beams + bool(options.get("scores"))  # scores need another pass over the caption
        return passes * (words + tokens)

    async def read_images(self, sources: list, text: str) -> list:
        """Returns images as inputs of the pipeline; counts the pixels of all images before decoding any."""
        files: list[bytes] = []
        pixels: list[int] = []
        for place, source in enumerate(sources):
            content = source if isinstance(source, bytes) else await self.in_thread(content_of, source, place)
            width, height = await self.in_thread(size_of, content, f"image {place}")
            files.append(content)
            pixels.append(width * height)
            if sum(pixels) > self.limits.pixels:
                size = f"more than {self.limits.pixels} pixels together"
                raise RequestError(413, f"The images have {size}; send fewer or smaller ones.")
        return [
            await self.in_thread(self.as_input, content, f"image {place}", text, pixels=pixels[place])
            for place, content in enumerate(files)
        ]

    def as_input(self, content: bytes, name: str, text: str) -> Any:
        image = load_image(content, name, least_side_of(self.pipeline.processor.image_processor))
        return self.pipeline.reader(text=text).read(image, name)


def check_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name == "text":
            is_right, right = isinstance(value, str), "a string"
        elif name == "scores":
            is_right, right = isinstance(value, bool), "true or false"
        elif name in OPTIONS:
            is_right = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= OPTIONS[name]
            right = f"a whole number from 1 to {OPTIONS[name]}"
        else:
            raise RequestError(400, f"{name!r:.60} is not an option; available: {', '.join(OPTIONS)}, text and scores.")
        if not is_right:
            raise RequestError(400, f"{name} is {value!r:.60}; it must be {right}.")


def content_of(source: Any, place: int) -> bytes:
    try:
        return from_base64(str(source))
    except ValueError:
        raise RequestError(400, f"Image {place} is not base64; the server does not read URLs or file names.") from None


def size_of(content: bytes, name: str) -> tuple[int, int]:
    """Returns width and height of an untrusted image file; refuses files that are costly to decode for their size."""
    try:
        with Image.open(io.BytesIO(content), formats=STRANGERS_FORMATS) as image:
            width, height = image.size
            has_scans = image.format in ("JPEG", "MPO") and content.count(START_OF_SCAN) > MAX_SCANS
            is_costly = has_scans or len(image.info.get("exif", b"")) > MAX_EXIF_BYTES
    except Exception as error:  # Pillow's plugins raise any exception for damaged data
        known = ", ".join(STRANGERS_FORMATS)
        raise RequestError(400, f"{name.capitalize()} is damaged or not an image of {known}.") from error
    if is_costly:
        raise RequestError(413, f"{name.capitalize()} has too many scans or EXIF data; save it again as a usual image.")
    is_thin = max(width, height) > MAX_ASPECT_RATIO * min(width, height)
    if is_thin or width * height > (Image.MAX_IMAGE_PIXELS or width * height):
        raise RequestError(413, f"{name.capitalize()} has {width} x {height} pixels, which is too large or too narrow.")
    return width, height

"""Requests for captions: JSON with images in base64 or URLs, or files of a form, read within limits."""

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from ..io import DEFAULT_CAPTION_LENGTH, MAX_CAPTION_LENGTH
from ..io.messages import one_sentence
from ..loading.pipelines import CaptioningPipeline
from ..models.image_processing_captioning import ImageError, least_side_of, load_image
from .images import ImageReader
from .limits import BusyError, RequestError, ServingLimits

MAX_BEAMS = 16
OPTIONS = {"num_beams": MAX_BEAMS, "max_new_tokens": MAX_CAPTION_LENGTH}
"""Arguments of `generate()` in requests, and their maximal values."""
FREE_BYTES = 2**20
"""Bytes of a body that are always read, so that requests of usual photos do not wait for large, slow ones."""
LARGE_BODIES = 8
"""Bodies of maximal size that may be in memory at the same time."""
MAX_MARKS = 100_000
"""Maximal brackets and commas of JSON: a body of only these would take thirty times its size when parsed."""


@dataclass(frozen=True)
class CaptionRequest:
    """Images, pairs of options and values, and the cost (beams x tokens) of each image."""

    images: list
    options: tuple[tuple[str, Any], ...]
    cost: int


class Body:
    """The body of a request; its bytes count in the reader's memory for bodies until it is closed."""

    def __init__(self, request: Request, reader: "RequestReader") -> None:
        self.request, self.reader = request, reader
        self.size = self.held = 0

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        limits = self.reader.limits
        async for chunk in self.request.stream():
            self.size += len(chunk)
            if self.size > limits.request_bytes:
                raise too_large(limits)
            self.reader.bytes_held -= self.held
            self.held = max(0, self.size - FREE_BYTES)
            self.reader.bytes_held += self.held
            if self.reader.bytes_held > LARGE_BODIES * limits.request_bytes:
                raise BusyError("it reads too many large requests already")
            yield chunk

    def close(self) -> None:
        self.reader.bytes_held -= self.held
        self.held = 0


class RequestReader:
    """Reads requests.

    Args:
        pipeline: pipeline of the captioner. Decoded images become its inputs at once for an [`CaptioningPipeline`],
            since these are smaller.
        limits: limits of requests.
    """

    def __init__(self, pipeline: Any, limits: ServingLimits) -> None:
        self.pipeline = pipeline if isinstance(pipeline, CaptioningPipeline) else None
        self.limits = limits
        self.images = ImageReader(limits)
        self.bytes_held = 0

    async def read(self, request: Request) -> CaptionRequest:
        """Returns the images and options of a request.

        Raises:
            RequestError: too many bytes, images or pixels, no image, one that cannot be read, or unknown options.
            BusyError: no memory for its body at the moment.
        """
        length = request.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > self.limits.request_bytes):
            raise too_large(self.limits)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = Body(request, self)
        try:
            if kind == "multipart/form-data":
                sources, options = await self.read_form(body)
            elif kind == "application/json":
                sources, options = await self.read_json(body)
            else:
                raise RequestError(415, "Send files as multipart/form-data, or images in base64 as application/json.")
            if not sources:
                raise RequestError(400, "The request has no images; send them as files or, in JSON, under 'images'.")
            if len(sources) > self.limits.images:
                raise RequestError(413, f"The request has {len(sources)} images; {self.limits.images} are allowed.")
            checked = checked_options(options)
            cost = await self.images.in_thread(lambda: self.cost_of_image(options))
            if len(sources) * cost > self.limits.cost:
                raise RequestError(
                    413,
                    f"The request asks for {len(sources)} x {cost} images x beams x tokens; {self.limits.cost} are "
                    "allowed: send fewer images, or ask for fewer beams or tokens.",
                )
            text = options.get("text", "")
            images = await self.images.read(sources, lambda content, place: self.prepared(content, place, text))
            return CaptionRequest(images, checked, cost)
        finally:
            body.close()

    async def read_form(self, body: Body) -> tuple[list, dict]:
        parser = MultiPartParser(
            body.request.headers, body.chunks(), max_files=self.limits.images, max_fields=len(OPTIONS) + 2
        )
        # keeps files in memory: a process may open fewer files than there are images
        parser.spool_max_size = self.limits.request_bytes
        try:
            form = await parser.parse()
        except MultiPartException as error:
            status = 413 if "Too many files" in error.message else 400
            raise RequestError(status, f"The form cannot be read: {error.message.rstrip('.')}.") from error
        sources: list[Any] = []
        options: dict[str, Any] = {}
        for name, value in form.multi_items():
            if isinstance(value, str):
                is_number = name in OPTIONS and value.isascii() and value.isdigit() and len(value) < 10
                options[name] = int(value) if is_number else value
                if name == "scores" and value in ("true", "false"):
                    options[name] = value == "true"
            else:
                sources.append(await value.read())
                await value.close()
        return sources, options

    async def read_json(self, body: Body) -> tuple[list, dict]:
        content = b"".join([chunk async for chunk in body.chunks()])
        sent = await self.images.in_thread(lambda: parsed(content))
        if not isinstance(sent, dict) or not isinstance(sent.get("images"), list):
            raise RequestError(400, "Send a JSON object with a list 'images'.")
        return sent.pop("images"), sent

    def cost_of_image(self, options: Mapping[str, Any]) -> int:
        """Returns beams x tokens; refuses an impossible beginning of captions, or too many tokens after it."""
        asked, words = options.get("max_new_tokens"), 0
        beams, tokens = options.get("num_beams") or 1, asked or DEFAULT_CAPTION_LENGTH
        if self.pipeline is not None:
            reader, text, usual = self.pipeline.reader(), options.get("text", ""), self.pipeline.model.generation_config
            try:
                reader.check_prefix(text, "The text")
            except ValueError as error:
                raise RequestError(400, f"{one_sentence(error)}.") from error
            words = reader.number_of_words(text)
            beams = max(options.get("num_beams") or usual.num_beams or 1, usual.num_return_sequences or 1)
            tokens = asked or usual.max_new_tokens or usual.max_length or DEFAULT_CAPTION_LENGTH
            room = getattr(self.pipeline.model.config, "max_position_embeddings", MAX_CAPTION_LENGTH) - 1 - words
            if tokens > room and (asked or words):
                raise RequestError(
                    400,
                    f"max_new_tokens is {tokens}, after {words} words of text; this captioner can write {room} then.",
                )
        passes = beams + bool(options.get("scores"))  # scores take another pass over the caption
        return passes * (words + tokens)

    def prepared(self, content: bytes, place: int, text: str) -> Any:
        """Returns an image file as an input of the pipeline."""
        least_side = None if self.pipeline is None else least_side_of(self.pipeline.processor.image_processor)
        try:
            image = load_image(content, f"image {place}", least_side)
        except ImageError as error:
            raise RequestError(400, f"{one_sentence(error)}.") from error
        if self.pipeline is None:
            return image
        item = self.pipeline.reader(text=text).try_to_read(image, place)
        if item.error is not None:
            raise RequestError(400, f"{one_sentence(item.error)}.") from item.error
        return item


def too_large(limits: ServingLimits) -> RequestError:
    return RequestError(413, f"The request has more than {limits.request_bytes} bytes.")


def parsed(content: bytes) -> Any:
    if sum(content.count(mark) for mark in (b",", b"[", b"{")) > MAX_MARKS:
        raise RequestError(413, f"The body has more than {MAX_MARKS} values.")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise RequestError(400, "The body is not JSON.") from None


def checked_options(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    for name, value in options.items():
        if name == "text":
            if not isinstance(value, str):
                raise RequestError(400, f"text is {value!r:.60}; it must be a string.")
        elif name == "scores":
            if not isinstance(value, bool):
                raise RequestError(400, f"scores is {value!r:.60}; it must be true or false.")
        elif name not in OPTIONS:
            raise RequestError(400, f"{name!r:.60} is not an option; there are {', '.join(OPTIONS)}, text and scores.")
        elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= OPTIONS[name]:
            raise RequestError(400, f"{name} is {value!r:.60}; it must be a whole number from 1 to {OPTIONS[name]}.")
    return tuple(sorted(options.items()))

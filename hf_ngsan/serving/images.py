"""Images of requests, decoded in a few threads with a bound on their total pixels."""

import asyncio
import base64
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from PIL import Image

from ..models.downloads import DownloadError, DownloadLimits, download
from ..models.images import ImageError, open_image
from .limits import RequestError, ServingLimits

T = TypeVar("T")
MAX_READERS = 4


class Budget:
    """A number of units that tasks share in the order of their requests: a semaphore for several units at once."""

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self.turn, self.returned = asyncio.Lock(), asyncio.Event()

    async def take(self, number: int) -> None:
        """Waits until `number` units, at most `total`, are free, and takes them."""
        if not number:
            return
        async with self.turn:
            while self.free < number:
                self.returned.clear()
                await self.returned.wait()
            self.free -= number

    def give_back(self, number: int) -> None:
        self.free += number
        self.returned.set()


class ImageReader:
    """Reads images in its own threads, so that neither slow downloads nor a busy captioner delay them.

    Args:
        limits: `pixels`, `request_bytes`, `seconds` and `allow_urls`.
    """

    def __init__(self, limits: ServingLimits) -> None:
        self.limits = limits
        self.pixels = Budget(limits.pixels)
        self.threads = ThreadPoolExecutor(min(MAX_READERS, os.cpu_count() or 1), "hf_ngsan reader")

    async def in_thread(self, work: Callable[[], T], pixels: int = 0) -> T:
        """Returns the result of work in a thread, which holds a number of pixels until it ends.

        A thread cannot be stopped, so it holds its pixels even after the time limit of its request.
        """
        await self.pixels.take(pixels)
        loop = asyncio.get_running_loop()
        job = self.threads.submit(work)
        job.add_done_callback(lambda _: loop.call_soon_threadsafe(self.pixels.give_back, pixels))
        return await asyncio.wrap_future(job)

    async def read(self, sources: Sequence[Any], prepare: Callable[[Image.Image, int], T]) -> list[T]:
        """Returns the prepared images of a request.

        Args:
            sources: bytes of files, base64, or URLs.
            prepare: takes an undecoded image and its place in the request.

        Raises:
            RequestError: no image, one that cannot be read, a URL that is not allowed, or too many pixels or bytes.
        """
        images, pixels, num_bytes = [], 0, 0
        for place, source in enumerate(sources):
            name = f"image {place}"
            if isinstance(source, str) and "://" in source[:10]:
                source = await self.downloaded(source, name, self.limits.request_bytes - num_bytes)
                num_bytes += len(source)
            image = await self.in_thread(partial(opened, source, name))
            images.append(image)
            pixels += image.width * image.height
            if pixels > self.limits.pixels:
                raise RequestError(
                    413,
                    f"The images have more than {self.limits.pixels} pixels together, up to image {place} of "
                    f"{image.width} x {image.height}; send fewer or smaller ones.",
                )
        found: list[T] = []
        images.reverse()
        while images:  # each is released before the next is decoded, since it keeps its pixels
            image = images.pop()
            found.append(await self.in_thread(partial(prepare, image, len(found)), image.width * image.height))
        return found

    async def downloaded(self, url: str, name: str, max_bytes: int) -> bytes:
        if not self.limits.allow_urls:
            raise RequestError(400, f"{name.capitalize()} is a URL, which this server does not read; send its bytes.")
        if urlsplit(url).scheme not in ("http", "https"):
            raise RequestError(400, f"{name.capitalize()}: only http and https URLs are read.")
        try:
            usual = DownloadLimits.of_environment()
            bounds = DownloadLimits(
                min(usual.max_bytes, max_bytes), min(usual.seconds, self.limits.seconds), usual.max_redirects
            )
            return await asyncio.to_thread(download, url, bounds, public_only=True)
        except DownloadError as error:
            raise RequestError(400, f"{name.capitalize()} cannot be downloaded: {error}.") from error

    def close(self) -> None:
        self.threads.shutdown()


def opened(source: Any, name: str) -> Image.Image:
    """Opens an image, without decoding it, from the bytes of a file or their base64."""
    try:
        if isinstance(source, str):
            source = base64.b64decode(source.partition(",")[2] if source.startswith("data:") else source, validate=True)
        if not isinstance(source, bytes):
            raise TypeError
        return open_image(source, name)
    except ImageError as error:
        raise RequestError(400, str(error)) from error
    except (ValueError, TypeError):
        raise RequestError(400, f"{name.capitalize()} is neither base64 nor a URL.") from None

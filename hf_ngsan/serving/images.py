"""Images of requests, decoded in a few threads with a bound on their total pixels."""

import asyncio
import base64
import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from PIL import Image

from ..data.image_files import FORMATS
from .downloads import DownloadError, download
from .limits import RequestError, ServingLimits

T = TypeVar("T")
MAX_READERS = 4
MAX_ASPECT_RATIO = 100
"""Largest ratio of the long side to the short side: the pixels of a thinner image multiply when it is resized."""
MAX_READS = 8
"""Times that all bytes of a file may be read: the entries of a TIFF file can all point to the same megabytes."""
MAX_EXIF_BYTES = 2**16
"""Largest EXIF data that are parsed, the maximum of JPEG; their entries can point to the same bytes, too."""
MAX_SCANS = 100
"""Scans of a JPEG file. Progressive files have about ten; each costs a pass over all pixels, even with few bytes."""
START_OF_SCAN = b"\xff\xda"


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

    async def read(self, sources: Sequence[Any], prepare: Callable[[bytes, int], T]) -> list[T]:
        """Returns the prepared images of a request.

        Args:
            sources: bytes of files, base64, or URLs.
            prepare: takes the bytes of an image file and its place in the request.

        Raises:
            RequestError: no image, one that cannot be read, a URL that is not allowed, or too many pixels or bytes.
        """
        files, pixels, num_bytes = [], [], 0
        for place, source in enumerate(sources):
            name = f"image {place}"
            if isinstance(source, str) and "://" in source[:10]:
                source = await self.downloaded(source, name, self.limits.request_bytes - num_bytes)
                num_bytes += len(source)
            content = await self.in_thread(partial(content_of, source, name))
            width, height = await self.in_thread(partial(size_of, content, name))
            files.append(content)
            pixels.append(width * height)
            if sum(pixels) > self.limits.pixels:
                raise RequestError(
                    413,
                    f"The images have more than {self.limits.pixels} pixels together, up to image {place} of "
                    f"{width} x {height}; send fewer or smaller ones.",
                )
        return [
            await self.in_thread(partial(prepare, content, place), pixels[place]) for place, content in enumerate(files)
        ]

    async def downloaded(self, url: str, name: str, max_bytes: int) -> bytes:
        if not self.limits.allow_urls:
            raise RequestError(400, f"{name.capitalize()} is a URL, which this server does not read; send its bytes.")
        try:
            return await download(url, max_bytes, self.limits.seconds)
        except DownloadError as error:
            raise RequestError(400, f"{name.capitalize()} cannot be downloaded: {error}.") from error

    def close(self) -> None:
        self.threads.shutdown()


def content_of(source: Any, name: str) -> bytes:
    """Returns the bytes of a file, given as such or as their base64."""
    try:
        if isinstance(source, str):
            source = base64.b64decode(source.partition(",")[2] if source.startswith("data:") else source, validate=True)
        if isinstance(source, bytes):
            return source
    except ValueError:
        pass
    raise RequestError(400, f"{name.capitalize()} is neither base64 nor a URL.")


class FileBytes(io.BytesIO):
    """The bytes of a file; reading them more than `MAX_READS` times is an error."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.left = MAX_READS * len(content) + 2**20

    def read(self, size: int | None = -1) -> bytes:
        part = super().read(size)
        self.left -= len(part)
        if self.left < 0:
            raise ValueError("its parts overlap")
        return part


def size_of(content: bytes, name: str) -> tuple[int, int]:
    """Returns width and height of a stranger's image file, without decoding it.

    Raises:
        RequestError: no image, more pixels than `PIL.Image.MAX_IMAGE_PIXELS`, an image that is much too thin, or a file
            that takes far more time or memory than its bytes and pixels.
    """
    try:
        with Image.open(FileBytes(content), formats=FORMATS) as image:
            width, height = image.size
            has_scans = image.format in ("JPEG", "MPO") and content.count(START_OF_SCAN) > MAX_SCANS
            is_costly = has_scans or len(image.info.get("exif", b"")) > MAX_EXIF_BYTES
    except Exception as error:  # Pillow's plugins raise anything on damaged data
        raise RequestError(
            400, f"{name.capitalize()} is no image of {', '.join(FORMATS)}, or a damaged one."
        ) from error
    if is_costly:
        raise RequestError(413, f"{name.capitalize()} has too many scans or EXIF data; save it again as a usual image.")
    is_thin = max(width, height) > MAX_ASPECT_RATIO * min(width, height)
    if is_thin or width * height > (Image.MAX_IMAGE_PIXELS or width * height):
        raise RequestError(413, f"{name.capitalize()} has {width} x {height} pixels, which are too many or too thin.")
    return width, height

"""Images of requests: read from bytes, base64 or URLs, in a few threads with a bound on their total pixels."""

import asyncio
import base64
import io
import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import httpx
from PIL import Image

from ..data.images import FORMATS
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
MAX_REDIRECTS = 10


class DownloadError(ValueError):
    """A download that failed or went beyond a limit; the message is the reason."""


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


async def download(url: str, max_bytes: float, seconds: float) -> bytes:
    """Returns the content of an `http(s)://` URL.

    Args:
        url: URL of the file.
        max_bytes: bytes of the content.
        seconds: seconds from the first request to the last byte.

    Raises:
        DownloadError: the server has no public IP address, cannot be reached, answers with an error, sends too much, is
            too slow, or redirects too often or to another kind of URL.
    """
    try:
        async with asyncio.timeout(seconds), httpx.AsyncClient(timeout=seconds) as client:
            for _ in range(MAX_REDIRECTS + 1):
                if urlsplit(url).scheme not in ("http", "https"):
                    raise DownloadError(f"{url:.200} is no http(s) URL")
                await refuse_private_server(url)
                async with client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
                    refuse_private_peer(response)
                    if not response.has_redirect_location:
                        response.raise_for_status()
                        return await received(response, max_bytes)
                    url = urljoin(url, response.headers["location"])
            raise DownloadError(f"the server redirects more than {MAX_REDIRECTS} times")
    except TimeoutError:
        raise DownloadError(f"it takes longer than {seconds:g} seconds") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise DownloadError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


async def refuse_private_server(url: str) -> None:
    """Raises a DownloadError unless every IP address of a URL's host is public; nothing is sent to it before."""
    try:
        host = urlsplit(url).hostname or ""
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # a UnicodeError is a ValueError
        raise DownloadError("its server is not known") from error
    if not found or not all(is_public(str(address[4][0])) for address in found):
        raise DownloadError(f"{host:.200} is no public server")


def refuse_private_peer(response: httpx.Response) -> None:
    """Raises a DownloadError if the answer comes from a private address: a name may resolve differently by now."""
    stream = response.extensions.get("network_stream")
    peer = stream.get_extra_info("server_addr") if stream is not None else None
    if peer is None or not is_public(peer[0]):
        raise DownloadError("it comes from no public server")


def is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(found, "ipv4_mapped", None) or found
    return inner.is_global and not inner.is_multicast


async def received(response: httpx.Response, max_bytes: float) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > max_bytes:
            raise DownloadError(f"it has more than {max_bytes:.0f} bytes")
    return bytes(content)

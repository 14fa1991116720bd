"""Downloads from untrusted servers, bounded in size, number of redirects and total time."""

import ipaddress
import math
import os
import queue
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

MAX_BYTES = "HF_NGSAN_DOWNLOAD_MAX_BYTES"
SECONDS = "HF_NGSAN_DOWNLOAD_SECONDS"
MAX_REDIRECTS = "HF_NGSAN_DOWNLOAD_MAX_REDIRECTS"
MAX_SILENCE = 30
"""Seconds during which a server may send nothing."""

REDIRECTS = (301, 302, 303, 307, 308)


class DownloadError(ValueError):
    """A download that failed or went beyond a limit; the message is the reason."""


@dataclass(frozen=True)
class DownloadLimits:
    """Limits of a download.

    Attributes:
        max_bytes: bytes of the content; environment variable `HF_NGSAN_DOWNLOAD_MAX_BYTES`.
        seconds: seconds from the first request to the last byte; `HF_NGSAN_DOWNLOAD_SECONDS`.
        max_redirects: number of redirects; `HF_NGSAN_DOWNLOAD_MAX_REDIRECTS`.
    """

    max_bytes: float = 100_000_000
    seconds: float = 60
    max_redirects: float = 10

    @classmethod
    def of_environment(cls) -> Self:
        """Returns the limits that environment variables set, and the defaults of the others.

        Raises:
            DownloadError: the value of a variable is no number from 0.
        """
        return cls(
            number_in(MAX_BYTES, cls.max_bytes),
            number_in(SECONDS, cls.seconds),
            number_in(MAX_REDIRECTS, cls.max_redirects),
        )


def number_in(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        number = float(text) if text else default
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise DownloadError(f"the environment variable {variable} is {text!r}, not a number from 0 on")
    return number


def download(url: str, limits: DownloadLimits | None = None, public_only: bool = False) -> bytes:
    """Returns the content of an `http(s)://` URL.

    Args:
        url: URL of the file.
        limits: limits of this download; [`DownloadLimits.of_environment`] if `None`.
        public_only: refuse servers whose IP address is not public, such as this machine and its network.

    Raises:
        DownloadError: the server cannot be reached, answers with an error, sends too much, is too slow, redirects too
            often or to another kind of URL, or has no public IP address.
    """
    limits = limits or DownloadLimits.of_environment()
    deadline = time.monotonic() + limits.seconds
    outcome: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            outcome.put(fetch(url, limits, deadline, public_only))
        except Exception as error:
            outcome.put(error)

    # Timeouts of HTTP clients apply to a single read; a server that sends a byte per second never reaches them.
    threading.Thread(target=work, name="hf_ngsan download", daemon=True).start()
    try:
        content = outcome.get(timeout=limits.seconds)
    except queue.Empty:
        raise too_slow(limits) from None
    if isinstance(content, DownloadError):
        raise content
    if isinstance(content, Exception):  # the client of huggingface_hub has changed its errors from release to release
        raise DownloadError(str(content) or type(content).__name__) from content
    return content


def fetch(url: str, limits: DownloadLimits, deadline: float, public_only: bool) -> bytes:
    from huggingface_hub import get_session  # only a download needs it

    session, num_redirects = get_session(), 0
    silence = min(MAX_SILENCE, limits.seconds)
    while True:
        if public_only:
            refuse_private_server(url)
        with session.stream(
            "GET", url, headers={"Accept-Encoding": "identity"}, timeout=silence, follow_redirects=False
        ) as response:
            if public_only:
                refuse_private_peer(response)
            if response.status_code not in REDIRECTS or "location" not in response.headers:
                response.raise_for_status()
                return content_of(response, limits, deadline)
            url = urljoin(url, response.headers["location"])
        num_redirects += 1
        if urlsplit(url).scheme not in ("http", "https"):
            raise DownloadError(f"the server redirects to {url:.200}, which is no http(s) URL")
        if num_redirects > limits.max_redirects:
            raise DownloadError(f"the server redirects more than {limits.max_redirects:g} times ({MAX_REDIRECTS})")


def refuse_private_server(url: str) -> None:
    """Raises a DownloadError unless every IP address of a URL's host is public; nothing is sent to it before."""
    host = urlsplit(url).hostname or ""
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        raise DownloadError(f"{host:.200} is not known") from error
    if not addresses or not all(map(is_public, addresses)):
        raise DownloadError(f"{host:.200} is no public server")


def refuse_private_peer(response: Any) -> None:
    """Raises a DownloadError if the answer comes from a private address: a name may resolve differently by now."""
    stream = response.extensions.get("network_stream")
    peer = stream.get_extra_info("server_addr") if stream is not None else None
    if peer is None or not is_public(peer[0]):
        raise DownloadError("it comes from no public server")


def is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(found, "ipv4_mapped", None) or found
    return inner.is_global and not inner.is_multicast


def content_of(response: Any, limits: DownloadLimits, deadline: float) -> bytes:
    length = response.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and len(length) < 20 and int(length) > limits.max_bytes:
        raise too_large(limits)
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > limits.max_bytes:
            raise too_large(limits)
        if time.monotonic() > deadline:
            raise too_slow(limits)
    return bytes(content)


def too_large(limits: DownloadLimits) -> DownloadError:
    return DownloadError(f"it has more than {limits.max_bytes:.0f} bytes ({MAX_BYTES})")


def too_slow(limits: DownloadLimits) -> DownloadError:
    return DownloadError(f"it takes longer than {limits.seconds:g} seconds ({SECONDS})")


__all__ = ["DownloadError", "DownloadLimits", "download"]

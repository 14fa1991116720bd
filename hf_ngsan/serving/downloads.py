"""Downloads of images that clients name by URL: from public addresses only, bounded in bytes, redirects and time."""

import asyncio
import ipaddress
import socket
from urllib.parse import urljoin, urlsplit

import httpx

MAX_REDIRECTS = 10


class DownloadError(ValueError):
    """A download that failed or went beyond a limit; the message is the reason."""


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
                        return await content_of(response, max_bytes)
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


async def content_of(response: httpx.Response, max_bytes: float) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > max_bytes:
            raise DownloadError(f"it has more than {max_bytes:.0f} bytes")
    return bytes(content)

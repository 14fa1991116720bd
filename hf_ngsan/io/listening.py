"""Hosts and ports that servers listen at: checks, sockets and URLs, and the names that a server answers to."""

import ipaddress
import json
import re
import socket
from collections.abc import Iterable
from typing import Any

NAME_OF_MACHINE = re.compile(
    r"(?=.{1,253}\Z)([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*([A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9_-]*)"
)
HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]*")
HOST_HEADER = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]+)(?::[0-9]*)?")
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def check_host(host: str) -> None:
    """Raises a ValueError unless a host is an IP address or a name of a machine.

    It refuses "" and "0", which stand for all addresses of this machine, and short forms of addresses such as "127.1".
    """
    if address_of(host) is not None:
        return
    if not NAME_OF_MACHINE.fullmatch(host) or HEXADECIMAL.fullmatch(host.rpartition(".")[2]):
        raise ValueError(
            f"The host {host!r:.80} is no IP address and no name; give 127.0.0.1 for this machine alone, or "
            "0.0.0.0 for all its addresses."
        )


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an address.

    Args:
        host: an IP address or a name.
        port: 0 for a free one.

    Raises:
        ValueError: the host is no IP address and no name of a machine.
        OSError: the address belongs to another machine, or the port is taken.
    """
    check_host(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        message = getattr(error, "strerror", None) or str(error)
        reason = message.partition(" (")[0]  # the address follows in brackets
        raise OSError(
            f"No server can listen at {host}, port {port or 'any'}: {reason}. Choose another --host or --port."
        ) from error
    # Connections inherit it; asyncio would not set it, and an answer in two parts would wait 40 ms for the other side.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_unspecified and not is_unspecified(host):
        listening.close()
        raise ValueError(f"The host {host} stands for all addresses of this machine; give 0.0.0.0 if you mean them.")
    return listening


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Returns the IP address that a host is; `None` for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_unspecified(host: str) -> bool:
    address = address_of(host)
    return address is not None and address.is_unspecified


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def host_name(text: str) -> str:
    """Returns a name or an IP address as it is compared: in lower case, without a last dot or brackets.

    Raises:
        ValueError: the text is no name of a machine and no IP address; it may have a scheme or a port.
    """
    name = text.lower().removesuffix(".")
    if name.startswith("[") and name.endswith("]") and ":" in name:
        name = name[1:-1]
    check_host(name)
    address = address_of(name)
    return name if address is None else str(address).partition("%")[0]


class OwnHosts:
    """ASGI middleware that refuses requests for the host of somebody else, with status 400.

    A page of a stranger can point a name of its own at this machine ("DNS rebinding") and then reads what a server
    answers, as if the server were its own. The browser still sends the stranger's name in the header `Host`.

    The server answers to localhost, 127.0.0.1, [::1], the host it listens at and those added, at any port. One that
    listens at all addresses of the machine (0.0.0.0, ::) also answers to the machine's name and to every IP address: an
    address needs no name that could point elsewhere.

    Args:
        app: application behind it.
        host: host that the server listens at.
        allowed: further names and addresses.

    Raises:
        ValueError: one of them is no name and no IP address.
    """

    def __init__(self, app: Any, host: str, allowed: Iterable[str] = ()) -> None:
        self.app = app
        self.names = {host_name(name) for name in (*LOCAL_HOSTS, host, *allowed)}
        self.takes_addresses = is_unspecified(host)
        if self.takes_addresses:
            self.names.add(socket.gethostname().lower())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(given) == 1 and self.is_own(given[0]):
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        message = f"This server does not answer to the host {', '.join(given)!r:.80}; --allowed-host adds a name."
        body = json.dumps({"error": message}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 400, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def is_own(self, header: str) -> bool:
        """Returns whether the value of a header `Host`, with or without a port, names this server."""
        found = HOST_HEADER.fullmatch(header)
        try:
            name = host_name("" if found is None else found[1])
        except ValueError:
            return False
        return name in self.names or (self.takes_addresses and address_of(name) is not None)

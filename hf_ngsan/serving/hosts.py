"""Sockets for servers, and the check of the host names in requests."""

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Any

HOST = re.compile(r"(\[[^\[\]]+\]|[^\[\]:/\s]+)(?::[0-9]*)?")
"""A name or an address, and an optional port, as in the header `Host`."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an IP address or name and a port (0 = any free one); raises an OSError."""
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as error:
        problem = f"No server can listen on {host!r}, port {port or 'any'} ({error})"
        raise OSError(f"{problem}; choose another --host or --port.") from error
    # Connections inherit this option. Without it, an answer in two parts would wait 40 ms for the client.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if is_unspecified(listening.getsockname()[0]) and not is_unspecified(host):
        listening.close()
        raise OSError(f"The host {host!r} means all addresses of this machine; give 0.0.0.0 if this is intended.")
    return listening


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_unspecified(host: str) -> bool:
    address = address_of(host)
    return address is not None and address.is_unspecified


def host_name(text: str) -> str:
    """Returns a host name or IP address, with or without a port, in lower case; raises a ValueError for other text."""
    match = HOST.fullmatch(text)
    if match is None and address_of(text) is None:
        raise ValueError(f"{text!r:.80} is neither a host name nor an IP address.")
    name = (match[1] if match else text).strip("[]").lower().removesuffix(".")
    return str(address_of(name) or name).partition("%")[0]


class OwnHosts:
    """ASGI middleware that refuses requests for other host names, with status 400.

    A malicious page can point its own domain name at this machine ("DNS rebinding") and then read the answers of a
    server. The browser still sends that domain name in the header `Host`.

    Args:
        app: the wrapped application.
        host: host that the server listens at. It is accepted with any port, as are localhost, 127.0.0.1 and [::1]. If
            it means all addresses (0.0.0.0, ::), the machine's name and every IP address are accepted, too.
        allowed: further names and addresses; a ValueError is raised for anything else.
    """

    def __init__(self, app: Any, host: str, allowed: Iterable[str] = ()) -> None:
        self.app = app
        self.names = {host_name(name) for name in (*LOCAL_HOSTS, host, *allowed)}
        self.takes_addresses = is_unspecified(host)
        if self.takes_addresses:
            self.names.add(socket.gethostname().lower())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.responses import JSONResponse

        hosts = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"]
        if scope["type"] not in ("http", "websocket") or (len(hosts) == 1 and self.is_own(hosts[0])):
            return await self.app(scope, receive, send)
        message = f"This server refuses requests for the host {', '.join(hosts)!r:.80}; --allowed-host adds a name."
        await JSONResponse({"error": message}, 400)(scope, receive, send)

    def is_own(self, header: str) -> bool:
        try:
            name = host_name(header)
        except ValueError:
            return False
        return name in self.names or (self.takes_addresses and address_of(name) is not None)

"""Hosts and ports that servers listen at: checks, sockets and URLs."""

import ipaddress
import re
import socket

NAME_OF_MACHINE = re.compile(
    r"(?=.{1,253}\Z)([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*([A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9_-]*)"
)
HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]*")


def check_host(host: str) -> None:
    """Raises a ValueError unless a host is an IP address or a name of a machine.

    It refuses "" and "0", which stand for all addresses of this machine, and short forms of addresses such as "127.1".
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if not NAME_OF_MACHINE.fullmatch(host) or HEXADECIMAL.fullmatch(host.rpartition(".")[2]):
            raise ValueError(
                f"The host {host!r:.80} is no IP address and no name; give 127.0.0.1 for this machine alone, or "
                "0.0.0.0 for all its addresses."
            ) from None


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


def is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

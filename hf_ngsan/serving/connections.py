"""Limits of connections: their number, and the time for sending a request and reading the answer."""

import asyncio
import math
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import ServingLimits

KEPT_FILES = 64
"""Open files that the server needs besides its connections."""
MAX_ACCEPTED, QUEUE = 64, 2048
"""Connections that are accepted at a time, and that wait in the queue of the operating system."""
LINGER = 1
"""Seconds that a connection stays open after an answer to an incomplete request."""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class BoundedConnection(H11Protocol):
    """A connection that is closed when a client keeps it waiting.

    The head of a request must arrive within `head_seconds` after the connection or the previous answer; the answer must
    be read within `head_seconds` after the time limit of a request. If there are too many connections, the one that has
    waited longest for a complete request is closed, but never one with a request at work.

    Args:
        limits: `seconds`, `head_seconds` and `connections`.
        arguments: uvicorn's.
    """

    def __init__(self, *arguments: Any, limits: ServingLimits, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.limits = limits
        self.owed_since = 0.0
        self.deadline: asyncio.TimerHandle | None = None

    @property
    def owes_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def allow(self, seconds: float) -> None:
        """Closes the connection after a time, unless something happens before."""
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = self.loop.call_later(seconds, self.transport.abort)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.owed_since = self.loop.time()
        self.allow(self.limits.head_seconds)
        bounded = [one for one in self.connections if isinstance(one, BoundedConnection)]
        open_ones = [one for one in bounded if not one.transport.is_closing()]
        if len(open_ones) > self.limits.connections:
            longest = min((one for one in open_ones if one.owes_request), key=lambda one: one.owed_since)
            if longest is self:
                transport.write(BUSY)
                transport.close()
            else:
                longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self.owed_since = self.loop.time()
            self.allow(self.limits.seconds + self.limits.head_seconds)

    def on_response_complete(self) -> None:
        self.owed_since = self.loop.time()
        # The rest of an incomplete body, which is no longer read, may arrive while the answer is sent.
        self.allow(LINGER if self.cycle.more_body else self.limits.head_seconds)
        super().on_response_complete()  # it may begin the next request


class BoundedServer(uvicorn.Server):
    """Serves an application within limits: `BoundedServer(app, limits).run([listening])`.

    asyncio accepts up to `backlog` connections before it handles any, and sets the queue of the operating system to the
    same length. Here few are accepted at a time, so that open files do not run out, and many may queue.

    Args:
        app: application of [`create_app`], or one around it, such as [`~hf_ngsan.io.listening.OwnHosts`].
        limits: `seconds`, `head_seconds` and `connections`.
    """

    def __init__(self, app: Callable, limits: ServingLimits) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(BoundedConnection, limits=limits),  # type: ignore[arg-type]
                ws="none",
                backlog=min(MAX_ACCEPTED, max(1, limits.connections // 4)),
                log_level="error",  # faults of requests are not logged: anybody could fill the disk
                timeout_graceful_shutdown=math.ceil(limits.seconds),
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(QUEUE)


def most_connections(wanted: int) -> int:
    """Returns the number of connections that the limit of open files allows, at most `wanted`."""
    try:
        import resource
    except ImportError:  # on Windows
        return wanted
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else max(1, min(wanted, (files - KEPT_FILES) // 2))

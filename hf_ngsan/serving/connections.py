"""Limits of connections: their number, and the time in which a client must send a request and read the answer."""

import asyncio
import math
import socket
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import ServingLimits

KEPT_FILES = 64
"""Open files that the server needs beside its connections."""
MAX_ACCEPTED, QUEUE = 64, 2048
"""Connections that are accepted at a time, and that wait to be."""
LINGER = 1
"""Seconds for which a connection stays after an answer to the half of a request."""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class BoundedConnection(H11Protocol):
    """A connection that is closed when a client keeps it waiting.

    The head of a request must be there `head_seconds` after the connection, or after the answer to the request before
    it; the answer must be read `head_seconds` after the time that a request may take. When there are too many
    connections, the one whose client has owed a whole request for longest makes room; a request at work never does.

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
        """Closes the connection after a time, unless there is something new by then."""
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
        # Of a body that is not whole, which nobody reads any more, the rest may come while the answer is on its way.
        self.allow(LINGER if self.cycle.more_body else self.limits.head_seconds)
        super().on_response_complete()  # which may begin the next request


class BoundedServer(uvicorn.Server):
    """Serves an application within limits: `BoundedServer(app, limits).run([listening])`.

    asyncio accepts up to `backlog` connections before it looks at any of them, and makes the queue of the operating
    system as long. Here few are accepted at a time, so that files do not run out, while many may queue.

    Args:
        app: of [`create_app`].
        limits: `seconds`, `head_seconds` and `connections`.
    """

    def __init__(self, app: FastAPI, limits: ServingLimits) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(BoundedConnection, limits=limits),  # type: ignore[arg-type]
                ws="none",
                backlog=min(MAX_ACCEPTED, max(1, limits.connections // 4)),
                log_level="error",  # not what is wrong with requests: anybody could fill the disk
                timeout_graceful_shutdown=math.ceil(limits.seconds),
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(QUEUE)


def most_connections(wanted: int) -> int:
    """Returns how many connections the files allow that a process may open, at most so many as are wanted."""
    try:
        import resource
    except ImportError:  # on Windows
        return wanted
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else max(1, min(wanted, (files - KEPT_FILES) // 2))

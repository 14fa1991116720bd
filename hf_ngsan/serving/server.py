"""A uvicorn server that drops slow and idle connections."""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import ServingLimits

SECONDS_TO_READ = 5
"""Seconds for reading an answer after the time limit of its request."""
LINGER = 1
"""Seconds that a connection stays open after an answer to an incomplete request."""


class BoundedConnection(H11Protocol):
    """A connection that is closed when its client is slow.

    The head of a request must arrive within the time limit after the connection or the previous answer, and the answer
    be read soon after that limit.

    Args:
        seconds: time limit of a request.
        arguments: uvicorn's.
    """

    def __init__(self, *arguments: Any, seconds: float, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.seconds = seconds
        self.deadline: asyncio.TimerHandle | None = None

    def allow(self, seconds: float) -> None:
        """Closes the connection after a time, unless something happens before."""
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = self.loop.call_later(seconds, self.transport.abort)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.allow(self.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self.allow(self.seconds + SECONDS_TO_READ)

    def on_response_complete(self) -> None:
        # The rest of an incomplete body, which is no longer read, may arrive while the answer is sent.
        self.allow(LINGER if self.cycle.more_body else self.seconds)
        super().on_response_complete()  # it may begin the next request


class BoundedServer(uvicorn.Server):
    """Serves an application within limits: `BoundedServer(app, limits).run([listening])`.

    Args:
        app: application of [`create_app`], or one around it, such as [`~hf_ngsan.serving.hosts.OwnHosts`].
        limits: `seconds`, and `connections`, beyond which requests get status 503.
    """

    def __init__(self, app: Callable, limits: ServingLimits) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(BoundedConnection, seconds=limits.seconds),  # type: ignore[arg-type]
                ws="none",
                limit_concurrency=limits.connections + 1,
                log_level="error",  # faults of requests are not logged: anybody could fill the disk
                timeout_graceful_shutdown=math.ceil(limits.seconds),
            )
        )

"""Limits of requests to the server, and the errors of requests beyond them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServingLimits:
    """Limits of a request, and how requests are gathered into batches.

    Attributes:
        request_bytes: of the body of a request, and of what its URLs lead to.
        images: of a request.
        pixels: of all images of a request once decoded; no more are decoded at once, of all requests together.
        cost: images x beams x tokens of a request, those of its text included; of a batch too.
        seconds: from the first byte of a request to its answer.
        head_seconds: for which a connection may wait before the head of a request is there.
        connections: open at the same time.
        waiting: images that may wait in all; requests beyond are told to come again.
        batch_size: images captioned together.
        wait_ms: for which a batch that is not full waits for the next image, in milliseconds.
        allow_urls: whether images may be named by URLs, which the server then downloads from public addresses.
    """

    request_bytes: int = 32_000_000
    images: int = 64
    pixels: int = 100_000_000
    cost: int = 8_192
    seconds: float = 60
    head_seconds: float = 10
    connections: int = 512
    waiting: int = 512
    batch_size: int = 32
    wait_ms: float = 5
    allow_urls: bool = False


class RequestError(ValueError):
    """A request that is refused, with a status of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BusyError(RuntimeError):
    """The server has as many requests as it takes."""

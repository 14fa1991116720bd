"""Limits of requests to the server, and the errors of requests beyond them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServingLimits:
    """Limits of requests, and settings of batches.

    Attributes:
        request_bytes: maximal bytes of the body of a request, and of the downloads from its URLs.
        images: maximal images of a request.
        pixels: maximal pixels of all images of a request, and of all images that are decoded at the same time.
        cost: maximal images x beams x tokens, with those of its text, of a request and of a batch.
        seconds: maximal seconds until the head of a request has arrived, and from there to its answer.
        connections: open connections, beyond which requests get status 503.
        waiting: maximal images that wait; further requests get status 503.
        batch_size: images captioned together.
        wait_ms: milliseconds that a batch with free places waits for the next image.
        allow_urls: whether images may be URLs, which the server downloads from public addresses.
    """

    request_bytes: int = 32_000_000
    images: int = 64
    pixels: int = 100_000_000
    cost: int = 8_192
    seconds: float = 60
    connections: int = 512
    waiting: int = 512
    batch_size: int = 32
    wait_ms: float = 5
    allow_urls: bool = False


class RequestError(ValueError):
    """A refused request, with an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BusyError(RuntimeError):
    """The server cannot take more requests at the moment."""

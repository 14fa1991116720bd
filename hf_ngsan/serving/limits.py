"""What a request to the server may cost."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServingLimits:
    """What a request may cost, and how requests are gathered.

    Attributes:
        request_bytes: of the body of a request.
        images: of a request.
        seconds: from the first byte of a request to its answer.
        waiting: images that may wait in all; requests beyond are told to come again.
        batch_size: images captioned together.
        wait_ms: for which a batch that is not full waits for the next image, in milliseconds.
        allow_urls: whether images may be named by URLs, which the server then downloads from public addresses.
    """

    request_bytes: int = 32_000_000
    images: int = 64
    seconds: float = 60
    waiting: int = 1024
    batch_size: int = 32
    wait_ms: float = 5
    allow_urls: bool = False

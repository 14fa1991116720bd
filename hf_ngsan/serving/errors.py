"""Requests that get no captions."""


class RequestError(ValueError):
    """A request that is refused.

    Args:
        status: of HTTP.
        message: what is wrong.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BusyError(RuntimeError):
    """More waits than is allowed to."""

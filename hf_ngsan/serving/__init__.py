"""A server of a captioner: requests over HTTP, gathered into batches.

It needs FastAPI and uvicorn (the extra `serve`), which are imported when the server is made.
"""

from typing import TYPE_CHECKING

from ..ground.lazy import lazy_names

if TYPE_CHECKING:
    from .app import create_app
    from .batching import Batcher
    from .connections import BoundedServer
    from .errors import BusyError
    from .limits import ServingLimits

__getattr__, __dir__, __all__ = lazy_names(__name__)

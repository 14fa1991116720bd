"""An HTTP server of a captioner, which gathers the images of requests into batches.

It needs Starlette and uvicorn (extra `serve`).
"""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .requests import ServingLimits
    from .server import Batcher, BoundedServer, create_app

__getattr__, __dir__, __all__ = lazy_names(__name__)

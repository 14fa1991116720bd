"""An HTTP server of a captioner, which gathers the images of requests into batches.

It needs FastAPI and uvicorn (extra `serve`).
"""

from .app import create_app
from .batching import Batcher
from .connections import BoundedServer
from .limits import BusyError, ServingLimits

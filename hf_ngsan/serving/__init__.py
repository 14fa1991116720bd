"""A server of a captioner: requests over HTTP, gathered into batches.

It needs FastAPI and uvicorn, which the extra `serve` brings.
"""

from .app import create_app
from .batching import Batcher
from .connections import BoundedServer
from .limits import BusyError, ServingLimits

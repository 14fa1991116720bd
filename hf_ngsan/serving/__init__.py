"""An HTTP server for a captioner; it groups the images of requests into batches.

The server needs Starlette and uvicorn (extra `serve`).
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

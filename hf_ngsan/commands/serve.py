"""The command `hf-ngsan serve`: starts an HTTP server that captions images."""

import argparse
import signal
import sys

from ..io.packaged import CAPTIONER
from .arguments import MODEL, add_shared, at_most, key_and_value, load_on_device, pick, positive_int

SUMMARY = """Serve a captioner over HTTP.

Images from requests that arrive together are captioned in one batch."""
EPILOG = """examples:
  hf-ngsan serve --model captioner --port 8000
  curl -F files=@photo.jpg -F num_beams=3 http://127.0.0.1:8000/caption

POST /caption accepts form files, or JSON {"images": ["BASE64", ...]}. GET /health and GET /metrics report the state of
the server. Ctrl-C or SIGTERM stops it after the current requests. With --uvicorn, log_level=info prints an access log,
and ssl_keyfile=FILE with ssl_certfile=FILE enables HTTPS. The command needs pip install "hf-ngsan[serve]"."""
LIMITS = {
    "images": ("--max-images", 64, "number of images per request"),
    "request_bytes": ("--max-bytes", 32_000_000, "size of a request in bytes"),
    "pixels": ("--max-pixels", 100_000_000, "number of pixels per request, and of images decoded at the same time"),
    "cost": ("--max-cost", 8_192, "cost of a request: images x beams x tokens"),
    "seconds": ("--max-seconds", 60, "time in seconds to receive and answer a request"),
    "connections": ("--max-connections", 512, "number of open connections; more requests get status 503"),
    "waiting": ("--max-waiting", 512, "number of waiting images; more requests get status 503"),
}
"""Help texts of the options, by fields of [`ServingLimits`]."""

SET_HERE = {"app", "host", "port", "uds", "fd", "http", "ws", "workers", "reload", "factory", "limit_concurrency"}
"""Settings of uvicorn that are set by other options, or that have no effect on a server in this process."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model", required=False, default=CAPTIONER, help=f"{MODEL} (default: {CAPTIONER})")
    add_shared(parser, "--host", "--allowed-host", "--engine")
    add_shared(parser, "--port", default=8000, help="port to listen on; 0 chooses a free port")
    add_shared(parser, "--batch-size", default=32)
    add = parser.add_argument
    wait = "milliseconds that an incomplete batch waits for another image"
    add("--wait-ms", type=at_most(1000, 0), default=5, metavar="MS", help=wait)
    for field, (name, default, what) in LIMITS.items():
        add(name, dest=field, type=positive_int, default=default, metavar="N", help=f"maximum {what}")
    settings = "settings of uvicorn.Config, such as log_level=info"
    add("--uvicorn", nargs="+", action="extend", type=key_and_value, default=[], metavar="KEY=VALUE", help=settings)


def run(options: argparse.Namespace) -> None:
    try:
        import python_multipart  # noqa: F401
        import uvicorn

        from ..serving import BoundedServer, ServingLimits, create_app
    except ImportError:
        raise ValueError('hf-ngsan serve needs Starlette and uvicorn: pip install "hf-ngsan[serve]".') from None
    from ..loading.models import reads_images
    from ..loading.pipelines import CaptioningPipeline
    from ..serving.hosts import OwnHosts, listen

    settings = dict(options.uvicorn)
    try:
        uvicorn.Config(options.model, **settings)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"--uvicorn has an invalid setting of uvicorn.Config: {error}.") from None
    if SET_HERE & settings.keys():
        raise ValueError(f"--uvicorn does not accept {' and '.join(SET_HERE & settings.keys())}.")
    listen(options.host, options.port).close()  # before the model is loaded
    model, processor = load_on_device(options.model, "captioning", options.engine)
    if not reads_images(model.config):
        raise ValueError(f"{options.model} cannot read images; add a vision encoder with hf-ngsan attach-vision.")
    limits = ServingLimits(**pick(options, *LIMITS, "batch_size", "wait_ms"))
    with listen(options.host, options.port) as listening:
        pipeline = CaptioningPipeline(model=model, processor=processor)
        app = OwnHosts(create_app(pipeline, limits, name=options.model), options.host, options.allowed_host)
        server = BoundedServer(app, limits, **settings)
        host = f"[{options.host}]" if ":" in options.host else options.host
        scheme = "https" if "ssl_certfile" in settings else "http"
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again at its end
        print(f"Serving {options.model} at {scheme}://{host}:{listening.getsockname()[1]}/caption", flush=True)
        try:
            server.run([listening])
        finally:
            signal.signal(signal.SIGTERM, before)

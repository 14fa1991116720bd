"""The command `hf-ngsan app`: a web page with captions, attention maps and search."""

import argparse
import threading
from contextlib import suppress

from ..io.packaged import CAPTIONER
from ..serving.hosts import listen
from .arguments import MODEL, add_shared, user_path

SUMMARY = """Open a web page with captions, attention maps and search.

The page captions photographs, searches an index by text, and updates the caption of an image when its regions are
dragged."""
EPILOG = """examples:
  hf-ngsan app
  hf-ngsan app --model ngsan-signed-scenes --data scenes

Press Ctrl-C to stop it. The command needs pip install "hf-ngsan[demo]". The page works offline: it loads nothing from
other servers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model", required=False, default=CAPTIONER, help=f"{MODEL} (default: {CAPTIONER})")
    add_shared(parser, "--data", required=False, help="dataset whose regions can be dragged on the page")
    add_shared(parser, "--split", "--engine", "--host", "--allowed-host")
    parser.add_argument("--index", type=user_path, metavar="INDEX", help="index to search, written by hf-ngsan index")
    add_shared(parser, "--port", help="port to listen on (default: the first free one from 7860)")


def run(options: argparse.Namespace) -> None:
    try:
        from ..space.page import launch, make_page
        from ..space.parts import load_parts
    except ImportError:
        raise ValueError('hf-ngsan app needs Gradio; install it with pip install "hf-ngsan[demo]".') from None
    from ..loading.engines import use_engine

    listen(options.host, options.port or 0).close()  # before models are loaded
    parts = load_parts(options.model, options.data, options.split, options.index)
    use_engine(parts.pipeline.model, parts.pipeline.processor, options.engine)
    page = make_page(parts)
    try:
        url = launch(page, options.host, options.port, allowed_hosts=options.allowed_host)
        print(f"{options.model} is at {url}", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    finally:
        page.close(verbose=False)

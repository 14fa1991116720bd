"""Downloads from servers that drip, never end, redirect for ever or lie: each ends soon and with one sentence."""

import asyncio
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hf_ngsan.serving import images as downloads
from hf_ngsan.serving.images import DownloadError, download


class Hostile(BaseHTTPRequestHandler):
    """Each path is a way to behave."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with suppress(OSError):  # the client has gone
            getattr(self, self.path.split("/")[1])()
        self.close_connection = True

    def begin(self, status: int = 200, **headers: object) -> None:
        self.send_response(status)
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def good(self):
        self.begin(Content_Length=4)
        self.wfile.write(b"good")

    def exactly(self):
        self.begin(Content_Length=10_000)
        self.wfile.write(bytes(10_000))

    def endless(self):
        self.begin()
        while True:
            self.wfile.write(bytes(1000))

    def announced(self):
        self.begin(Content_Length=6_400_000_000)
        time.sleep(5)

    def dripping(self):
        self.begin(Content_Length=1000)
        self.drip(b"x")

    def many_headers(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        self.drip(b"X-Again: 1\r\n")

    def drip(self, drop: bytes) -> None:
        for _ in range(50):
            self.wfile.write(drop)
            self.wfile.flush()
            time.sleep(0.1)

    def silent(self):
        time.sleep(5)

    def cut(self):
        self.begin(Content_Length=100)
        self.wfile.write(b"short")

    def nonsense(self):
        self.wfile.write(b"\0" * 100)

    def loop(self):
        self.begin(302, Location="/loop", Content_Length=0)

    def onward(self):
        number = int(self.path.split("/")[2])
        self.begin(307, Location=f"/onward/{number - 1}" if number > 1 else "/good", Content_Length=0)

    def file(self):
        self.begin(302, Location="file:///etc/hostname", Content_Length=0)

    def data(self):
        self.begin(302, Location="data:image/png;base64,AAAA", Content_Length=0)

    def absent(self):
        self.begin(404, Content_Length=0)

    def log_message(self, *arguments):
        pass


@contextmanager
def serving(handler):
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(downloads, "is_public", lambda address: True)
    monkeypatch.setattr(ThreadingHTTPServer, "block_on_close", False)
    with serving(Hostile) as url:
        yield url


def downloaded(url: str) -> bytes:
    return asyncio.run(download(url, max_bytes=10_000, seconds=1))


def test_what_is_within_the_limits_arrives(server):
    for path, size in {"good": 4, "onward/1": 4, f"onward/{downloads.MAX_REDIRECTS}": 4, "exactly": 10_000}.items():
        assert len(downloaded(f"{server}/{path}")) == size, path


def test_what_a_hostile_server_sends_is_refused(server):
    for path in (
        "endless",
        "announced",
        "nonsense",
        "loop",
        f"onward/{downloads.MAX_REDIRECTS + 1}",
        "file",
        "data",
        "absent",
    ):
        try:
            downloaded(f"{server}/{path}")
        except DownloadError:
            continue
        pytest.fail(path)


@pytest.mark.slow
def test_a_server_that_lets_one_wait_is_left_soon(server):
    for path in ("dripping", "many_headers", "silent", "cut"):
        begin = time.monotonic()
        with pytest.raises(DownloadError):
            downloaded(f"{server}/{path}")
        assert time.monotonic() - begin < 4, path

"""Downloads from servers that drip, never end, redirect for ever or lie: each ends soon and with one sentence."""

import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

from hf_ngsan.models.downloads import DownloadError, DownloadLimits, download
from hf_ngsan.models.images import ImageError, load_image
from tests.tables import each_row

LIMITS = DownloadLimits(max_bytes=10_000, seconds=1, max_redirects=3)


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
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(ThreadingHTTPServer, "block_on_close", False)
    with serving(Hostile) as url:
        yield url


@each_row("path", ["good", "onward/1", "onward/3"])
def test_what_is_within_the_limits_arrives(server, path):
    assert download(f"{server}/{path}", LIMITS) == b"good"


def test_the_limit_of_bytes_itself_is_allowed(server):
    assert len(download(f"{server}/exactly", LIMITS)) == 10_000


def refusal_of(url: str) -> str:
    with pytest.raises(DownloadError) as caught:
        download(url, LIMITS)
    return str(caught.value)


@each_row(
    ("path", "fact"),
    [
        ("endless", "HF_NGSAN_DOWNLOAD_MAX_BYTES"),
        ("announced", "10000 bytes"),
        ("nonsense", ""),
        ("loop", "HF_NGSAN_DOWNLOAD_MAX_REDIRECTS"),
        ("onward/4", "3 times"),
        ("file", "file:///etc/hostname"),
        ("data", "data:image/png"),
        ("absent", "404"),
    ],
)
def test_what_a_hostile_server_sends_is_refused(server, path, fact):
    assert fact in refusal_of(f"{server}/{path}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "fact"),
    [("dripping", "HF_NGSAN_DOWNLOAD_SECONDS"), ("many_headers", "1 seconds"), ("silent", ""), ("cut", "")],
)
def test_a_server_that_lets_one_wait_is_left_soon(server, path, fact):
    begin = time.monotonic()
    assert fact in refusal_of(f"{server}/{path}")
    assert time.monotonic() - begin < 4


def test_the_environment_sets_the_limits_of_images(server, monkeypatch):
    monkeypatch.setenv("HF_NGSAN_DOWNLOAD_MAX_BYTES", "3")
    with pytest.raises(ImageError, match=rf"{server}/good.*more than 3 bytes") as caught:
        load_image(f"{server}/good")
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
    monkeypatch.setenv("HF_NGSAN_DOWNLOAD_MAX_BYTES", "4e3")
    assert DownloadLimits.of_environment() == DownloadLimits(max_bytes=4000)
    for text in ("many", "-1", "nan", "inf"):
        monkeypatch.setenv("HF_NGSAN_DOWNLOAD_SECONDS", text)
        with pytest.raises(ImageError, match="HF_NGSAN_DOWNLOAD_SECONDS") as caught:
            load_image(f"{server}/good")
        assert text in str(caught.value)

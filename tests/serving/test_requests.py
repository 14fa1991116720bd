"""Files of strangers that cost far more than they seem, and servers that lie, drip or are private: all are refused."""

import asyncio
import io
import struct
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from fastapi.testclient import TestClient
from PIL import Image

from hf_ngsan.serving import ServingLimits, create_app, requests
from hf_ngsan.serving.requests import MAX_SCANS, START_OF_SCAN, RequestError, download, is_public, size_of
from tests.serving.test_app import scripted


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def jpeg_with_scans(number: int) -> bytes:
    data = encoded(Image.new("RGB", (64, 64)), "JPEG", progressive=True)
    last = data[data.rindex(START_OF_SCAN) : -2]
    return data[:-2] + number * last + data[-2:]


def tiff_with_overlapping_parts(num_entries: int, num_bytes: int) -> bytes:
    entries = b"".join(struct.pack("<HHII", 40000 + number, 7, num_bytes, 8) for number in range(num_entries))
    count, start = struct.pack("<H", num_entries), struct.pack("<I", 8 + num_bytes)
    return b"II*\0" + start + bytes(num_bytes) + count + entries + bytes(4)


def test_ordinary_files_have_their_size():
    for kind in ("JPEG", "PNG", "TIFF", "WEBP", "GIF"):
        assert size_of(encoded(Image.new("RGB", (64, 48)), kind), "image 0") == (64, 48)
    assert size_of(jpeg_with_scans(5), "image 0") == (64, 64)


def test_files_that_cost_far_more_than_they_seem_are_refused():
    exif = b"Exif\0\0II*\0" + bytes(2**17)
    for content in (
        jpeg_with_scans(MAX_SCANS),
        tiff_with_overlapping_parts(50, 1_000_000),
        encoded(Image.new("RGB", (64, 64)), "PNG", exif=exif),
        encoded(Image.new("1", (20000, 20000)), "PNG"),
        encoded(Image.new("1", (6400, 8)), "PNG"),
    ):
        with pytest.raises(RequestError):
            size_of(content, "image 0")


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
    monkeypatch.setattr(requests, "is_public", lambda address: True)
    monkeypatch.setattr(ThreadingHTTPServer, "block_on_close", False)
    with serving(Hostile) as url:
        yield url


def downloaded(url: str) -> bytes:
    return asyncio.run(download(url, max_bytes=10_000))


def test_what_is_within_the_limits_arrives(server):
    for path, size in {"good": 4, "onward/1": 4, f"onward/{requests.MAX_REDIRECTS}": 4, "exactly": 10_000}.items():
        assert len(downloaded(f"{server}/{path}")) == size, path


def test_what_a_hostile_server_sends_is_refused(server):
    for path in (
        "endless",
        "announced",
        "nonsense",
        "loop",
        f"onward/{requests.MAX_REDIRECTS + 1}",
        "file",
        "data",
        "absent",
    ):
        try:
            downloaded(f"{server}/{path}")
        except (ValueError, httpx.HTTPError, httpx.InvalidURL):
            continue
        pytest.fail(path)


@pytest.mark.slow
def test_a_server_that_lets_one_wait_is_left_soon(server):
    limits = ServingLimits(allow_urls=True, seconds=1)
    with TestClient(create_app(scripted(lambda images: "a ball"), limits)) as client:
        for path, status in (("dripping", 504), ("many_headers", 504), ("silent", 504), ("cut", 400)):
            begin = time.monotonic()
            assert client.post("/caption", json={"images": [f"{server}/{path}"]}).status_code == status, path
            assert time.monotonic() - begin < 4, path


def test_addresses_that_are_public():
    for address in ("8.8.8.8", "2001:4860:4860::8888"):
        assert is_public(address), address
    private = (
        "127.0.0.1 10.1.2.3 192.168.0.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 ::1 ::ffff:127.0.0.1 fe80::1%eth0"
    )
    for address in private.split():
        assert not is_public(address), address


def test_private_servers_are_not_asked():
    """By whatever name."""
    with TestClient(create_app(scripted(lambda images: "a ball"), ServingLimits(allow_urls=True))) as client:
        for url in ("http://127.0.0.1:9/x", "http://localhost/x", "http://[::1]/x", "http://2130706433/x"):
            answer = client.post("/caption", json={"images": [url]})
            assert answer.status_code == 400 and "public" in answer.json()["error"], url
        for url in ("ftp://example.org/x", "http:///x", "http://[/x"):
            answer = client.post("/caption", json={"images": [url]})
            assert answer.status_code == 400, url


def test_a_name_that_changes_its_address_gives_nothing_away(monkeypatch):
    async def refuse_nothing(host):
        pass

    monkeypatch.setattr(requests, "refuse_private_server", refuse_nothing)
    with serving(Hostile) as url, pytest.raises(ValueError, match="public"):
        asyncio.run(download(f"{url}/good", max_bytes=1000))

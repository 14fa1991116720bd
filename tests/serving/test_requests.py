"""Files of strangers that cost far more than they seem, and servers that lie, drip or are private: all are refused."""

import asyncio
import io
import struct
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

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


def answer(status: int = 200, body: bytes = b"", **headers: object) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {status} Said", "Connection: close", *lines, "", ""]).encode() + body


ANSWERS = {
    "good": answer(body=b"good", Content_Length=4),
    "exactly": answer(body=bytes(10_000), Content_Length=10_000),
    "too much": answer(body=bytes(20_000)),
    "nonsense": b"\0" * 100,
    "loop": answer(302, Location="/loop"),
    "file": answer(302, Location="file:///etc/hostname"),
    "data": answer(302, Location="data:image/png;base64,AAAA"),
    "absent": answer(404, Content_Length=0),
    "cut": answer(body=b"short", Content_Length=100),
    "silent": b"",
    "dripping": answer(Content_Length=1000),
    "many headers": b"HTTP/1.1 200 OK\r\n",
}
DROPS = {"silent": b"", "dripping": b"x", "many headers": b"X-Again: 1\r\n"}


class Hostile(BaseHTTPRequestHandler):
    """Each path is a way to behave; `/onward/3` redirects three times."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        _, path, *number = unquote(self.path).split("/")
        self.close_connection = True
        with suppress(OSError):  # the client has gone
            if number and int(number[0]):
                self.wfile.write(answer(307, Location=f"/{path}/{int(number[0]) - 1}", Content_Length=0))
                return
            self.wfile.write(ANSWERS["good" if number else path])
            for _ in range(50 if path in DROPS else 0):
                self.wfile.write(DROPS[path])
                time.sleep(0.1)

    def log_message(self, *arguments):
        pass


@contextmanager
def serving():
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as listening:
        listening.block_on_close = False
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(requests, "is_public", lambda address: True)
    with serving() as url:
        yield url


def test_what_a_server_sends_is_read_within_limits(server):
    def downloaded(path: str) -> bytes:
        return asyncio.run(download(f"{server}/{path}", max_bytes=10_000))

    most = requests.MAX_REDIRECTS
    for path, size in {"good": 4, "onward/1": 4, f"onward/{most}": 4, "exactly": 10_000}.items():
        assert len(downloaded(path)) == size, path
    for path in ("too much", "nonsense", "loop", f"onward/{most + 1}", "file", "data", "absent", "cut"):
        try:
            downloaded(path)
        except (ValueError, httpx.HTTPError, httpx.InvalidURL):
            continue
        pytest.fail(path)


@pytest.mark.slow
def test_a_server_that_lets_one_wait_is_left_soon(server):
    limits = ServingLimits(allow_urls=True, seconds=1)
    with TestClient(create_app(scripted(lambda images: "a ball"), limits)) as client:
        for path, status in (("dripping", 504), ("many headers", 504), ("silent", 504), ("cut", 400)):
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
    with serving() as url, pytest.raises(ValueError, match="public"):
        asyncio.run(download(f"{url}/good", max_bytes=1000))

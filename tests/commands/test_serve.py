"""`hf-ngsan serve`: a server that answers, outlives its clients, and ends when it is told to."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import asdict

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("python_multipart", reason="the extra serve is not installed")

import httpx

from hf_ngsan.models.pipeline_image_to_text import ImageToTextPipeline
from hf_ngsan.serving.limits import ServingLimits
from tests.commands.running import fails, prints
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor


def test_what_cannot_be_served(tmp_path, capsys, monkeypatch):
    tiny_captioner().save_pretrained(tmp_path / "features")
    tiny_processor().save_pretrained(tmp_path / "features")
    assert "vision encoder" in fails(capsys, "serve", "--model", tmp_path / "features")
    assert str(tmp_path / "gone") in fails(capsys, "serve", "--model", tmp_path / "gone")
    pixel_captioner().save_pretrained(tmp_path / "pixels")
    pixel_processor().save_pretrained(tmp_path / "pixels")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        fails(capsys, "serve", "--model", tmp_path / "pixels", "--port", taken.getsockname()[1])
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "hf-ngsan[serve]" in fails(capsys, "serve", "--model", tmp_path / "pixels")


@pytest.fixture(scope="module")
def pixels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pixels")
    pixel_captioner().save_pretrained(folder)
    pixel_processor().save_pretrained(folder)
    return folder


@pytest.fixture
def serve(pixels, monkeypatch, capsys):
    """Runs the command with a server that ends at once; returns the limits it was given and where it listened."""
    from hf_ngsan import serving

    create_app, given = serving.create_app, []
    monkeypatch.setattr(
        serving, "create_app", lambda *args, **names: given.append(args[1]) or create_app(*args, **names)
    )
    monkeypatch.setattr(serving.BoundedServer, "run", lambda self, sockets: given.append(sockets[0].getsockname()))

    def start(*words: object) -> tuple[ServingLimits, tuple]:
        given.clear()
        prints(capsys, "serve", "--model", pixels, "--port", 0, *words)
        return tuple(given)

    return start


@pytest.mark.parametrize(
    ("option", "value", "fields"),
    [
        ("--batch-size", 3, ["batch_size"]),
        ("--wait-ms", 70, ["wait_ms"]),
        ("--max-images", 2, ["images"]),
        ("--max-bytes", 1000, ["request_bytes"]),
        ("--max-pixels", 999, ["pixels"]),
        ("--max-cost", 77, ["cost"]),
        ("--max-seconds", 4, ["seconds", "head_seconds"]),
        ("--max-connections", 5, ["connections"]),
    ],
)
def test_an_option_changes_the_limit_of_its_name_alone(serve, option, value, fields):
    defaults, given = (asdict(serve(*words)[0]) for words in ([], [option, value]))
    assert {name: given[name] for name in given if given[name] != defaults[name]} == dict.fromkeys(fields, value)


def test_urls_are_read_if_they_are_allowed(serve):
    assert serve()[0].allow_urls is False and serve("--allow-urls")[0].allow_urls is True


def test_a_server_listens_where_it_is_told_to(serve):
    assert serve()[1][0] == "127.0.0.1" and serve("--host", "0.0.0.0")[1][0] == "0.0.0.0"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert serve("--port", port)[1][1] == port


def photo() -> bytes:
    file = io.BytesIO()
    PHOTOS[0].save(file, "PNG")
    return file.getvalue()


@pytest.mark.slow
def test_a_server_lives_through_broken_clients_and_ends_gracefully(tmp_path):
    model, processor = pixel_captioner(), pixel_processor()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    expected = ImageToTextPipeline(model=model, processor=processor)(PHOTOS[0])[0]["generated_text"]
    limits = ["--max-bytes", "1000000", "--max-images", "4", "--max-seconds", "60"]
    command = [sys.executable, "-m", "hf_ngsan.cli", "serve", "--model", str(tmp_path), "--port", "0", *limits]
    with subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(re.search(r":(\d+)/caption", server.stdout.readline())[1])
            url = f"http://127.0.0.1:{port}"
            for sent in (b"", b"GET", b"\x00\xff" * 100, b"POST /caption HTTP/1.1\r\nContent-Length: 900\r\n\r\nhalf"):
                with socket.create_connection(("127.0.0.1", port)) as client:
                    client.sendall(sent)
            with socket.create_connection(("127.0.0.1", port)) as client:  # gone before its answer
                client.sendall(
                    b"POST /caption HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
                    b'{"images": [1]}'
                )
            with httpx.Client(base_url=url, timeout=60) as client:
                assert client.post("/caption", files={"files": b"0" * 2_000_000}).status_code == 413
                assert client.post("/caption", files=[("files", photo())] * 5).status_code == 413
                answer = client.post("/caption", files={"files": photo()})
                assert answer.status_code == 200 and answer.json() == {"captions": [expected]}
                assert client.get("/health").json()["waiting"] == 0
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) in (0, -signal.SIGTERM)
        finally:
            server.kill()

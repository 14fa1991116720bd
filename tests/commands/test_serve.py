"""`hf-ngsan serve`: the server answers, survives its clients, and ends on request."""

import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from starlette.testclient import TestClient

from hf_ngsan.cli import main
from hf_ngsan.serving import ServingLimits
from tests.commands.running import fails


def test_what_cannot_be_served(scene_captioner, captioner, tmp_path, capsys, monkeypatch):
    assert "vision encoder" in fails(capsys, "serve", "--model", scene_captioner)
    assert str(tmp_path / "gone") in fails(capsys, "serve", "--model", tmp_path / "gone")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        fails(capsys, "serve", "--model", captioner, "--port", taken.getsockname()[1])
    for setting in ("ws=auto", "port=1", "unheard=1", "log_level=loud"):
        fails(capsys, "serve", "--uvicorn", setting)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "hf-ngsan[serve]" in fails(capsys, "serve", "--model", captioner)


def test_every_option_reaches_the_server(captioner, monkeypatch):
    asked = {}

    class Server:
        def __init__(self, app, limits, **options):
            asked.update(limits=limits, app=app, uvicorn=options)

        def run(self, sockets):
            sockets[0].close()

    def listened(host, port):
        asked["address"] = host, port
        return socket.create_server(("127.0.0.1", 0))

    def engine_used(model, processor, engine):
        asked["engine"] = type(model).__name__, type(processor).__name__, engine

    monkeypatch.setattr("hf_ngsan.loading.engines.use_engine", engine_used)
    monkeypatch.setattr("hf_ngsan.serving.BoundedServer", Server)
    monkeypatch.setattr("hf_ngsan.serving.hosts.listen", listened)
    address, bounds = "--host localhost --port 8001", "--batch-size 2 --wait-ms 3 --max-images 4 --max-bytes 5"
    more = "--max-pixels 6 --max-cost 7 --max-seconds 8 --max-connections 9 --engine auto"
    more += " --allowed-host Captions.example. --allowed-host 192.0.2.7"
    more += " --max-waiting 10 --uvicorn log_level=info backlog=11"
    assert main(["serve", "--model", str(captioner), *address.split(), *bounds.split(), *more.split()]) == 0
    assert asked["address"] == ("localhost", 8001)
    assert asked["engine"] == ("NGSANForConditionalGeneration", "NGSANProcessor", "auto")
    client = TestClient(asked["app"])
    for host, status in (
        ("captions.example", 200),
        ("192.0.2.7:80", 200),
        ("localhost:8001", 200),
        ("evil.example", 400),
    ):
        assert client.get("/health", headers={"Host": host}).status_code == status, host
    assert asked["uvicorn"] == {"log_level": "info", "backlog": 11}
    assert asked["limits"] == ServingLimits(
        request_bytes=5, images=4, pixels=6, cost=7, seconds=8, connections=9, waiting=10, batch_size=2, wait_ms=3
    )


@pytest.mark.slow
def test_what_was_accepted_is_answered_after_sigterm(captioner, photographs):
    command = [sys.executable, "-m", "hf_ngsan.cli", "serve", "--model", str(captioner), "--port", "0"]
    command += ["--wait-ms", "1000", "--batch-size", "64"]  # a batch waits, so requests are in progress
    number = 8
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, ThreadPoolExecutor(number) as clients:
        try:
            url = re.search(r"http\S+(?=/caption)", server.stdout.readline())[0]
            with httpx.Client(base_url=url, timeout=60) as client:
                asked = [
                    clients.submit(client.post, "/caption", files={"files": photographs[0].read_bytes()})
                    for _ in range(number)
                ]
                while client.get("/health").json()["waiting"] < number:
                    time.sleep(0.01)
                server.send_signal(signal.SIGTERM)
                answers = [item.result() for item in asked]
            assert server.wait(60) == 0
        finally:
            server.kill()
    assert [answer.status_code for answer in answers] == [200] * number
    assert {len(answer.json()["captions"]) for answer in answers} == {1}

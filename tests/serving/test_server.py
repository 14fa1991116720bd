"""Connections of the server: incomplete requests end, and do not delay others."""

import asyncio
import base64
import contextlib
import json
import socket
import threading

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from hf_ngsan.serving import BoundedServer, ServingLimits, create_app
from hf_ngsan.serving.hosts import listen
from tests.serving.test_app import FILES, scripted

HEAD = b"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n"
GET = b"GET /now HTTP/1.1\r\nHost: x\r\n\r\n"
HEALTH, METRICS = (
    f"GET /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode() for name in ("health", "metrics")
)
LONG = 1000.0


def make_app(release: asyncio.Event, arrived: list) -> Starlette:
    async def now(request: Request) -> JSONResponse:
        return JSONResponse("now")

    async def wait(request: Request) -> JSONResponse:
        arrived.append(request)
        await release.wait()
        return JSONResponse("late")

    post = {"methods": ["POST"]}
    return Starlette(routes=[Route("/now", now), Route("/never", now, **post), Route("/wait", wait, **post)])


@contextlib.asynccontextmanager
async def serving(pipeline=None, **limits: float):
    """Yields the port of a server, an event that releases its answers to /wait, and the requests for these."""
    release, arrived = asyncio.Event(), []
    with listen("127.0.0.1", 0) as listening:
        bounds = ServingLimits(**limits)
        app = make_app(release, arrived) if pipeline is None else create_app(pipeline, bounds)
        server = BoundedServer(app, bounds)
        task = asyncio.create_task(server.serve([listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield listening.getsockname()[1], release, arrived
        release.set()
        server.should_exit = True
        await task


async def ended(port: int, start: bytes, slowly: bytes = b"") -> bytes:
    """Sends the rest one byte at a time; returns the answer until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = asyncio.create_task(reader.read())
    writer.write(start)
    for byte in slowly:
        if received.done():
            break
        writer.write(bytes([byte]))
        await asyncio.sleep(0.05)
    try:
        return await received
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_what_owes_a_request_or_the_rest_of_one_is_closed():
    async def scenario():
        async with serving(seconds=0.05) as (port, *_):
            for sent in (
                b"",
                HEAD,
                b"POST",
                b"\r\n",
                HEAD + b"Expect: 100-continue\r\n\r\n",
                b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
                GET,  # and no other request follows
                b"POST /never HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n{",
                HEAD + b"\r\n{",
                HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
            ):
                await asyncio.wait_for(ended(port, sent), 30)

    asyncio.run(scenario())


def test_requests_beyond_the_connections_are_refused_and_those_at_work_are_answered():
    async def scenario():
        async with serving(seconds=LONG, connections=4) as (port, release, arrived):
            work = b"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            at_work = [asyncio.create_task(ended(port, work)) for _ in range(4)]
            while len(arrived) < 4:
                await asyncio.sleep(0.01)
            close = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
            assert b" 503 " in await asyncio.wait_for(ended(port, close), 30)
            release.set()
            answers = await asyncio.wait_for(asyncio.gather(*at_work), 30)
            assert all(answer.endswith(b'"late"') for answer in answers)
            assert (await asyncio.wait_for(ended(port, close), 30)).endswith(b'"now"')

    asyncio.run(scenario())


def test_answers_in_parts_do_not_wait_for_each_other():
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_settings_of_uvicorn_are_taken():
    config = BoundedServer(Starlette(), ServingLimits(connections=4), log_level="info", root_path="/captions").config
    assert (config.limit_concurrency, config.log_level, config.root_path) == (5, "info", "/captions")


def photo_request(*more: str) -> bytes:
    body = json.dumps({"images": [base64.b64encode(FILES[0]).decode()]}).encode()
    lines = ("POST /caption HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, *more, "", ""]).encode() + body


@pytest.mark.slow
def test_senders_of_a_byte_at_a_time_are_refused_in_time_and_others_answered_meanwhile():
    full = photo_request("Connection: close")
    head = full.index(b"\r\n\r\n") + 4

    async def scenario():
        output = scripted(lambda images: "a ball")
        async with serving(output, seconds=0.5) as (port, *_):
            parts = [(b"", full)] * 10 + [(full[:head], full[head:])] * 10
            slow = [asyncio.create_task(ended(port, *two)) for two in parts]
            for _ in range(10):
                assert b'"ok"' in await asyncio.wait_for(ended(port, HEALTH), 30)
            answers = await asyncio.wait_for(asyncio.gather(*slow), 60)
            assert set(answers[:10]) == {b""}, "their heads never came"
            assert all(b" 504 " in answer for answer in answers[10:])
            assert b"a ball" in await asyncio.wait_for(ended(port, full[:-1], full[-1:]), 30)

    asyncio.run(scenario())


def test_clients_that_leave_or_end_their_sending_are_gone_and_others_are_answered():
    begun, free = threading.Event(), threading.Event()

    def slow(images):
        begun.set()
        assert free.wait(30)
        return "a ball"

    async def gone(port: int, number: int) -> None:
        while f'status="499"}} {number}'.encode() not in await ended(port, METRICS):
            await asyncio.sleep(0.01)

    async def scenario():
        async with serving(scripted(slow), wait_ms=0) as (port, *_):
            for number, is_half in enumerate((True, False), 1):
                begun.clear(), free.clear()
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(photo_request())
                await asyncio.to_thread(begun.wait, 30)
                if is_half:
                    writer.write_eof()
                else:
                    writer.transport.abort()
                await asyncio.wait_for(gone(port, number), 30)
                free.set()
                answer = await asyncio.wait_for(ended(port, photo_request("Connection: close")), 30)
                assert b" 200 " in answer and b"a ball" in answer
                writer.close()
            assert b"waiting_images 0" in await ended(port, METRICS)

    asyncio.run(scenario())

"""`hf-ngsan serve` with 1% hostile requests among ordinary ones: latency with and without these, and memory.

In each round, half of the ordinary requests are sent without hostile requests and half with them, under the same
conditions. Ordinary requests send one to four photos of 60 x 80 to 1200 x 1600 pixels, as form or JSON. Hostile
requests take turns: texts of 60,000 words, the maximum cost and more, photos of 88 million pixels once and thirty
times, files with overlapping parts or thousands of scans, JSON of brackets, 100 connections with half a header or half
a body. The program fails if an ordinary request is lost, if their 99th percentile is more than three times that without
hostile requests, or if memory after any round is more than 1.05 times that after the first.

    python benchmarks/serving_hostile.py
    python benchmarks/serving_hostile.py --requests 400 --rounds 1
    python benchmarks/serving_hostile.py --requests 20000 --rounds 10 --share 0.02  # 1% of all
"""

import argparse
import asyncio
import base64
import contextlib
import functools
import io
import itertools
import json
import random
import re
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import httpx
import numpy as np
import psutil
from PIL import Image

MOST_LATENCY, MOST_MEMORY = 3.0, 1.05
HELD_SECONDS, CONNECTIONS = 20, 100
SECONDS_IDLE = 3
"""Time before memory is measured; by then, an idle server has released the memory of its largest batch."""
Send = Callable[[httpx.AsyncClient], Awaitable[httpx.Response | None]]


def encoded(image: Image.Image, file_format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


@functools.cache
def photo(seed: int, height: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((height * 4 // 3, height), Image.Resampling.BICUBIC)
    return encoded(image, "PNG" if seed % 4 == 0 else "JPEG")


def in_form(*files: bytes, **options: object) -> Send:
    return lambda client: client.post("/caption", files=[("files", file) for file in files], data=options)


def in_json(*files: bytes, **options: object) -> Send:
    def send(client: httpx.AsyncClient) -> Awaitable[httpx.Response]:
        return client.post("/caption", json={"images": [base64.b64encode(file).decode() for file in files], **options})

    return send


def send_bytes(content: bytes) -> Send:
    return lambda client: client.post("/caption", content=content, headers={"content-type": "application/json"})


def held_open(sent: bytes) -> Send:
    """Opens connections that send only the beginning of a request, until the server closes them."""

    async def hold(host: str, port: int) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(sent)
            await asyncio.wait_for(reader.read(), HELD_SECONDS)

    async def send(client: httpx.AsyncClient) -> None:
        await asyncio.gather(*(hold(client.base_url.host, client.base_url.port or 80) for _ in range(CONNECTIONS)))

    return send


def tiff_with_overlapping_parts(num_entries: int = 500, num_bytes: int = 1_000_000) -> bytes:
    entries = b"".join(struct.pack("<HHII", 40000 + number, 7, num_bytes, 8) for number in range(num_entries))
    count, start = struct.pack("<H", num_entries), struct.pack("<I", 8 + num_bytes)
    return b"II*\0" + start + bytes(num_bytes) + count + entries + bytes(4)


def jpeg_with_scans(number: int = 5000) -> bytes:
    data = encoded(Image.new("RGB", (4000, 4000)), "JPEG", progressive=True)
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + number * last + data[-2:]


def hostile() -> Iterator[Send]:
    small, large = photo(1, 60), encoded(Image.new("1", (9400, 9400)), "PNG")
    head = b"POST /caption HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n"
    kinds = [
        in_json(small, text="a " * 60_000),
        in_json(small, num_beams=16, max_new_tokens=511),
        in_form(*[small] * 64),
        in_json(*[small] * 64, num_beams=16, max_new_tokens=4096),
        in_form(large),
        in_form(*[large] * 30),
        in_form(tiff_with_overlapping_parts()),
        in_form(jpeg_with_scans()),
        send_bytes(b"[" * 10_000_000),
        send_bytes(json.dumps({"images": ["A" * 30_000_000]}).encode()),
        held_open(head),
        held_open(head + b"\r\n{"),
    ]
    return itertools.cycle(kinds)


def ordinary(number: int) -> Send:
    chance = random.Random(number)
    heights = [60, 240, 480, 1200]
    photos = [photo(chance.randrange(100), chance.choice(heights)) for _ in range(chance.choice([1, 1, 1, 2, 4]))]
    return chance.choice([in_form, in_json])(*photos)


async def ask(url: str, requests: list[tuple[bool, Send]], clients: int) -> tuple[list[float], int]:
    """Returns latencies and failures of ordinary requests; hostile requests are sent at the same time."""
    waiting, latencies, lost, aside = iter(requests), [], 0, []
    bounds = httpx.Limits(max_connections=None, max_keepalive_connections=clients)

    async def attack(session: httpx.AsyncClient, send: Send) -> None:
        with contextlib.suppress(httpx.HTTPError):
            await send(session)

    async def client(session: httpx.AsyncClient, attacker: httpx.AsyncClient) -> None:
        nonlocal lost
        for is_ordinary, send in waiting:
            if not is_ordinary:
                aside.append(asyncio.create_task(attack(attacker, send)))
                continue
            start = time.perf_counter()
            try:
                answer = await send(session)
                lost += answer is None or answer.status_code != 200
            except httpx.HTTPError:
                lost += 1
            latencies.append(time.perf_counter() - start)

    async with (
        httpx.AsyncClient(base_url=url, timeout=None, limits=bounds) as session,
        httpx.AsyncClient(base_url=url, timeout=90, limits=bounds) as attacker,
    ):
        await asyncio.gather(*(client(session, attacker) for _ in range(clients)))
        await asyncio.gather(*aside)
    return latencies, lost


@contextlib.contextmanager
def server(model: str) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "hf_ngsan.cli", "serve", "--model", model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            match = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
            assert match is not None, "the server has not started"
            yield match[0], psutil.Process(process.pid)
        finally:
            process.terminate()


def percentile_99(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="ngsan-photos")
    parser.add_argument(
        "--requests", type=int, default=2000, help="ordinary requests in all rounds together (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument(
        "--share",
        type=float,
        default=0.01,
        help="share of hostile requests in the half with hostile requests (%(default)s)",
    )
    arguments = parser.parse_args()
    half, kinds = arguments.requests // arguments.rounds // 2, hostile()
    numbers = itertools.count()
    without: list[float] = []
    among: list[float] = []
    memory: list[float] = []
    lost = 0
    with server(arguments.model) as (url, process):
        for round_number in range(1, arguments.rounds + 1):
            plain = [(True, ordinary(next(numbers))) for _ in range(half)]
            times, missing = asyncio.run(ask(url, plain, arguments.clients))
            without += times
            lost += missing
            mixed = [(True, ordinary(next(numbers))) for _ in range(half)]
            for place in range(max(1, round(half * arguments.share))):
                mixed.insert((place * half) // max(1, round(half * arguments.share)), (False, next(kinds)))
            times, missing = asyncio.run(ask(url, mixed, arguments.clients))
            among += times
            lost += missing
            time.sleep(SECONDS_IDLE)
            memory.append(process.memory_info().rss / 2**20)
            print(
                f"round {round_number}: p99 {percentile_99(without):.2f} s, with hostile requests "
                f"{percentile_99(among):.2f} s; {memory[-1]:.0f} MiB after {2 * half * round_number} requests",
                flush=True,
            )
    latency, growth = percentile_99(among) / percentile_99(without), max(memory) / memory[0]
    print(
        f"p50 {statistics.median(without):.2f} and {statistics.median(among):.2f} s, p99 {percentile_99(without):.2f} "
        f"and {percentile_99(among):.2f} s: ratio {latency:.2f}, required at most {MOST_LATENCY}; memory ratio "
        f"{growth:.2f}, required at most {MOST_MEMORY}; {lost} of {2 * half * arguments.rounds} ordinary requests lost"
    )
    return 0 if latency <= MOST_LATENCY and growth <= MOST_MEMORY and lost == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

"""The server with 32 clients against `pipeline("image-to-text", batch_size=...)` on the same photos, in one process.

Every client sends one JPEG file at a time and waits for its caption, from the spatial captioner of pipeline_batches.py
with random weights, or from the packaged captioner. Server and pipeline take turns under the same conditions. 8 clients
and a single client also take turns, and their median response times are compared: with perfect use of all processors,
8 clients would wait 8 / processors times as long. The program fails if a request is lost or a ratio is not reached.

    python benchmarks/serving.py
    python benchmarks/serving.py --packaged --engine onnx --requests 500
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import torch
from pipeline_batches import make_pipeline, seconds, write_photos
from transformers import pipeline
from transformers.utils import logging

from hf_ngsan import CaptioningPipeline
from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.loading.engines import ENGINES
from hf_ngsan.loading.models import load_model
from hf_ngsan.serving import BoundedServer, ServingLimits, create_app
from hf_ngsan.serving.hosts import listen

WANTED = 0.9
FEW_CLIENTS, LONE = 8, 10
"""Number of clients that are compared with one, and requests of the single client in each round."""
MOST_WAITING = 1.5
"""Maximum median response time of `FEW_CLIENTS`, relative to a single client's times `FEW_CLIENTS` / threads."""


@contextmanager
def running_server(pipe: CaptioningPipeline, batch_size: int, clients: int) -> Iterator[str]:
    """Runs the server in a thread on a free port of this machine; yields the URL."""
    limits = ServingLimits(batch_size=batch_size, waiting=2 * clients, seconds=3600)
    with listen("127.0.0.1", 0) as listening:
        server = BoundedServer(create_app(pipe, limits), limits)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


async def ask(url: str, photos: list[bytes], clients: int) -> tuple[float, list[float], int]:
    """Sends every photo once; returns seconds in all, of each answer, and how many were lost."""
    waiting, latencies, lost = iter(photos), [], 0

    async def client(session: httpx.AsyncClient) -> None:
        nonlocal lost
        for photo in waiting:
            start = time.perf_counter()
            answer = await session.post(f"{url}/caption", files={"files": photo})
            latencies.append(time.perf_counter() - start)
            lost += answer.status_code != 200 or len(answer.json()["captions"]) != 1

    start = time.perf_counter()
    async with httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=clients)) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    return time.perf_counter() - start, latencies, lost + len(photos) - len(latencies)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=2000, help="requests in all rounds together (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--packaged", action="store_true", help="use the packaged captioner with three beams")
    parser.add_argument("--engine", choices=ENGINES, default="torch", help="engine of the packaged captioner")
    parser.add_argument("--vocabulary", type=int, default=9491)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    if arguments.packaged:
        model, processor = load_model(CAPTIONER, "captioning")
        pipe = pipeline("image-to-text", model=model, processor=processor, engine=arguments.engine)
    else:
        pipe = make_pipeline(arguments.vocabulary, arguments.device)
    pipe.model.generation_config.min_new_tokens = pipe.model.generation_config.max_new_tokens
    count, ratios, latencies, lost = arguments.requests // arguments.rounds, [], [], 0
    waiting = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(pipe, arguments.batch_size, arguments.clients) as url,
    ):
        paths = write_photos(Path(folder), count)
        photos = [Path(path).read_bytes() for path in paths]
        seconds(pipe, paths[: arguments.batch_size], arguments.batch_size)  # warm up
        for number in range(1, arguments.rounds + 1):
            alone, _ = seconds(pipe, paths, arguments.batch_size)
            served, times, missing = asyncio.run(ask(url, photos, arguments.clients))
            ratios.append(alone / served)
            latencies += times
            lost += missing
            _, few_times, missing = asyncio.run(ask(url, photos, FEW_CLIENTS))
            _, lone_times, also_missing = asyncio.run(ask(url, photos[:LONE], 1))
            lost += missing + also_missing
            lone = statistics.median(lone_times)
            waiting.append(statistics.median(few_times) / (lone * FEW_CLIENTS / arguments.threads))
            print(
                f"round {number}: pipeline {count / alone:.2f}, server {count / served:.2f} images/s, "
                f"ratio {ratios[-1]:.2f}; alone {1000 * lone:.0f} ms, {FEW_CLIENTS} clients "
                f"{1000 * statistics.median(few_times):.0f} ms, {waiting[-1]:.2f} of the bound",
                flush=True,
            )
    quantiles = statistics.quantiles(latencies, n=100)
    print(f"latency: p50 {quantiles[49]:.2f} s, p99 {quantiles[98]:.2f} s; {lost} requests lost")
    reached, waited = statistics.median(ratios), statistics.median(waiting)
    print(f"ratio: {reached:.2f}; required: at least {WANTED} and none lost")
    print(
        f"median response time of {FEW_CLIENTS} clients: {waited:.2f} times that of one x {FEW_CLIENTS} / "
        f"{arguments.threads} threads; required: at most {MOST_WAITING}"
    )
    return 0 if reached >= WANTED and lost == 0 and waited <= MOST_WAITING else 1


if __name__ == "__main__":
    sys.exit(main())

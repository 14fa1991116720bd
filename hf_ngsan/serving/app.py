"""The web application: captions, health and metrics."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.requests import ClientDisconnect

from ..messages import one_sentence
from ..models.pipeline_image_to_text import ImageToTextPipeline
from .batching import Batcher, BusyError
from .limits import ServingLimits
from .requests import RequestError, read_request

CLIENT_GONE = 499


def create_app(pipeline: ImageToTextPipeline, limits: ServingLimits | None = None, name: str = "") -> FastAPI:
    """Makes the server of a captioner.

    `POST /caption` takes files of a form, or JSON `{"images": [base64, …]}`, with the options `num_beams`,
    `max_new_tokens` and `text`, and answers `{"captions": [str, …]}`, or `{"error": str}` with a status: 400 for what
    cannot be read, 413 for too much, 503 when too many images wait, 504 when it took too long. `GET /health` tells
    whether the server works, `GET /metrics` its counts in the text format of Prometheus.

    Args:
        pipeline: of a captioner that reads images.
        limits: of requests.
        name: of the model.
    """
    limits = limits or ServingLimits()

    def work(images: list, options: tuple) -> list:
        answers = pipeline(images, batch_size=len(images), on_error="skip", **dict(options))
        return [
            RequestError(400, answer["error"]) if answer.get("error") else answer["generated_text"]
            for [answer, *_] in answers
        ]

    batcher = Batcher(work, limits)
    statuses: Counter[int] = Counter()
    seconds = [0.0]

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await batcher.start()
        yield
        await batcher.stop()

    app = FastAPI(title="hf-ngsan", docs_url=None, redoc_url=None, lifespan=lifespan)

    @app.post("/caption")
    async def caption(request: Request) -> Response:
        start = time.perf_counter()
        response = await answer(request)
        statuses[response.status_code] += 1
        seconds[0] += time.perf_counter() - start
        return response

    async def answer(request: Request) -> Response:
        try:
            async with asyncio.timeout(limits.seconds):
                asked = await read_request(request, limits)
                captions = await unless_gone(request, batcher.submit(asked.images, asked.options))
        except RequestError as error:
            return JSONResponse({"error": str(error)}, error.status)
        except TimeoutError:
            return JSONResponse({"error": f"The answer takes longer than {limits.seconds:g} seconds."}, 504)
        except BusyError as error:
            return JSONResponse({"error": f"The server is busy: {error}."}, 503, {"Retry-After": "1"})
        except ValueError as error:  # of the pipeline: words that the captioner does not know, and so on
            return JSONResponse({"error": f"{one_sentence(error)}."}, 400)
        except ClientDisconnect:
            captions = None
        if captions is None:
            return Response(status_code=CLIENT_GONE)
        return JSONResponse({"captions": captions})

    @app.get("/health")
    async def health() -> dict:
        return {"status": "ok", "model": name, "waiting": batcher.waiting}

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        counts = {
            "batches_total": batcher.batches,
            "images_total": batcher.images,
            "waiting_images": batcher.waiting,
            "request_seconds_sum": seconds[0],
            "request_seconds_count": sum(statuses.values()),
            **{f'requests_total{{status="{status}"}}': number for status, number in sorted(statuses.items())},
        }
        return PlainTextResponse("".join(f"hf_ngsan_{name} {value}\n" for name, value in counts.items()))

    return app


async def unless_gone(request: Request, work: Coroutine[Any, Any, list]) -> list | None:
    """Returns the result of some work; None, and the work is cancelled, if the client has gone before."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        gone.cancel()
        task.cancel()


async def disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

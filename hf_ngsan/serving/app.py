"""The web application: captions, health and metrics.

```python
app = create_app(pipeline, ServingLimits(batch_size=16))
```
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import torch
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from transformers import StoppingCriteria, StoppingCriteriaList

from ..io.messages import is_out_of_memory, one_sentence, type_and_reason
from ..loading.pipelines import CaptioningPipeline
from .batching import AbandonedError, Batcher
from .limits import BusyError, RequestError, ServingLimits
from .requests import RequestReader

CLIENT_GONE = 499
logger = logging.getLogger(__name__)
MAX_MESSAGE = 500
"""Maximal characters of an error, which may quote a request."""


class StopIfAbandoned(StoppingCriteria):
    """Ends `generate()` at the next step if no client waits for the batch."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> Any:
        if self.batcher.is_abandoned():
            raise AbandonedError
        return input_ids.new_zeros(len(input_ids), dtype=torch.bool)


def create_app(pipeline: CaptioningPipeline, limits: ServingLimits | None = None, name: str = "") -> FastAPI:
    """Makes the server of a captioner.

    `POST /caption` takes files of a form, or JSON `{"images": [base64, …]}`, with the options `num_beams`,
    `max_new_tokens`, `text` and `scores`, and answers `{"captions": [str, …]}`, or `{"error": str}` with a status: 400
    for a request that cannot be read, 413 for a too large one, 500 if the model fails, 503 if too many images wait, 504
    after the time limit.
    With `scores` true the answer also has `"scores"`: for each caption its `score` and `words` (see
    [`~hf_ngsan.models.text_scores.TextScores`]). `GET /health` answers while the server works, `GET /metrics` has
    counts in the text format of Prometheus. It answers whatever host a request names:
    [`~hf_ngsan.serving.hosts.OwnHosts`] around it refuses those of strangers, as in `hf-ngsan serve`.

    Args:
        pipeline: pipeline of a captioner that reads images.
        limits: limits of requests.
        name: name of the model.
    """
    limits = limits or ServingLimits()
    reader = RequestReader(pipeline, limits)

    def work(images: list, options: tuple) -> list:
        given = dict(options)
        if reader.pipeline is not None:
            given.pop("text", None)  # the images have their text already
        given["return_scores"] = given.pop("scores", False)
        stop = StoppingCriteriaList([StopIfAbandoned(batcher)])
        answers = pipeline(images, batch_size=len(images), on_error="skip", stopping_criteria=stop, **given)
        return [RequestError(400, answer["error"]) if answer.get("error") else answer for [answer, *_] in answers]

    batcher = Batcher(work, limits)
    statuses: Counter[int] = Counter()
    seconds = 0.0

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await batcher.start()
        yield
        await batcher.stop()
        reader.images.close()

    app = FastAPI(title="hf-ngsan", openapi_url=None, lifespan=lifespan)

    @app.exception_handler(HTTPException)
    async def no_such_page(request: Request, error: HTTPException) -> Response:
        message = "There are POST /caption, GET /health and GET /metrics."
        return JSONResponse({"error": message}, error.status_code, error.headers)

    @app.post("/caption")
    async def caption(request: Request) -> Response:
        nonlocal seconds
        start = time.perf_counter()
        response = await answer(request)
        statuses[response.status_code] += 1
        seconds += time.perf_counter() - start
        return response

    async def answer(request: Request) -> Response:
        try:
            async with asyncio.timeout(limits.seconds):
                batcher.check_room(1)
                asked = await reader.read(request)
                answers = await unless_gone(request, batcher.submit(asked.images, asked.options, asked.cost))
        except RequestError as error:
            return refusal(error.status, str(error))
        except TimeoutError:
            return refusal(504, f"The answer takes longer than {limits.seconds:g} seconds.")
        except BusyError as error:
            return refusal(503, f"The server is busy: {error}.", {"Retry-After": "1"})
        except ValueError as error:  # of the pipeline
            return refusal(400, f"{one_sentence(error)}.")
        except ClientDisconnect:
            answers = None
        except Exception as error:
            logger.exception("A batch of images was lost.")
            advice = "start the server with a smaller --batch-size" if is_out_of_memory(error) else "its log says more"
            return refusal(500, f"The server could not caption the images ({type_and_reason(error)}); {advice}.")
        if answers is None:
            return Response(status_code=CLIENT_GONE)
        found: dict[str, list] = {"captions": [one["generated_text"] for one in answers]}
        if "score" in answers[0]:
            found["scores"] = [{"score": one["score"], "words": one["word_scores"]} for one in answers]
        return JSONResponse(found)

    @app.get("/health")
    async def health() -> dict:
        return {"status": "ok", "model": name, "waiting": batcher.waiting}

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        counts = {
            "batches_total": batcher.batches,
            "images_total": batcher.images,
            "waiting_images": batcher.waiting,
            "request_seconds_sum": seconds,
            "request_seconds_count": sum(statuses.values()),
            **{f'requests_total{{status="{status}"}}': number for status, number in sorted(statuses.items())},
        }
        return PlainTextResponse("".join(f"hf_ngsan_{name} {value}\n" for name, value in counts.items()))

    return app


def refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Returns the answer to a refused request; cuts a long message and replaces lone surrogates."""
    shown = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]} …."
    return JSONResponse({"error": shown.encode(errors="replace").decode()}, status, headers)


async def unless_gone(request: Request, work: Coroutine[Any, Any, list]) -> list | None:
    """Returns the result of some work; if the client disconnects first, cancels the work and returns None."""
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

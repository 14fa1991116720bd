"""The web application with captions, health and metrics, its batching of images, and a server with limits.

```python
limits = ServingLimits(batch_size=16)
BoundedServer(create_app(pipeline, limits), limits).run([listening])
```
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from transformers import StoppingCriteriaList
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..io.messages import is_out_of_memory, one_sentence, shortened, type_and_reason
from ..loading.pipelines import CaptioningPipeline
from .requests import RequestError, RequestReader, ServingLimits

CLIENT_GONE = 499
MAX_MESSAGE = 500  # maximum characters of an error message, which may quote a request
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Job:
    """An image that waits for its answer; `cost` is beams x tokens."""

    image: Any
    options: Hashable
    cost: int
    answer: asyncio.Future


class Batcher:
    """Groups images that arrive within a few milliseconds, or while the model is busy, into batches, in order.

    `work` captions a list of images with the same options in one thread, and returns an answer or an error for each.
    """

    def __init__(self, work: Callable[[list, Any], Sequence], limits: ServingLimits) -> None:
        self.work, self.limits = work, limits
        self.batches = self.images = 0
        self.has_ended = False
        self.queue: list[Job] = []
        self.running: list[Job] = []
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, "hf_ngsan captioner")

    @property
    def waiting(self) -> int:
        """Number of unanswered images whose client is still connected."""
        return sum(not job.answer.done() for job in (*self.queue, *self.running))

    def check_room(self, number: int) -> None:
        """Raises a RequestError if too many images would wait, or if captioning has stopped."""
        if self.has_ended:
            raise RequestError(500, "The server has stopped captioning; start it again.")
        if self.waiting + number > self.limits.waiting:
            raise RequestError(503, f"The server is busy: {self.waiting} images are waiting.")

    async def submit(self, images: Sequence, options: Hashable, cost: int = 0) -> list:
        """Returns an answer for each image of a request; raises a RequestError if too many images are waiting."""
        self.check_room(len(images))
        loop = asyncio.get_running_loop()
        jobs = [Job(image, options, cost, loop.create_future()) for image in images]
        self.queue += jobs
        self.arrived.set()
        try:
            return list(await asyncio.gather(*(job.answer for job in jobs)))
        finally:  # a disconnected client no longer waits
            for job in jobs:
                job.answer.cancel()

    async def run(self) -> None:
        """Answers batches until it is cancelled; if it stops for another reason, all waiting images get an error."""
        try:
            while True:
                self.running = await self.next_batch()
                await self.answer()
        finally:
            self.has_ended = True
            for job in (*self.running, *self.queue):
                if not job.answer.done():
                    job.answer.set_exception(RuntimeError("The server has stopped captioning"))

    async def answer(self) -> None:
        loop, images = asyncio.get_running_loop(), [job.image for job in self.running]
        self.batches += 1
        self.images += len(images)
        try:
            answers = await loop.run_in_executor(self.thread, self.work, images, self.running[0].options)
        except Exception as error:
            answers = [error] * len(images)
        for job, answer in zip(self.running, answers, strict=True):
            if job.answer.done():
                continue
            if isinstance(answer, Exception):
                job.answer.set_exception(answer)
            else:
                job.answer.set_result(answer)

    async def next_batch(self) -> list[Job]:
        """Returns jobs with the same options, once they fill a batch or no job has arrived for the waiting time.

        Each job restarts the waiting time. After a batch, its clients send their next images one after the other; a
        batch of only the first few would make the others wait for a second one.
        """
        while True:
            self.arrived.clear()
            self.queue = [job for job in self.queue if not job.answer.done()]  # without those of disconnected clients
            if not self.queue:
                await self.arrived.wait()
                continue
            first = self.queue[0]
            size = max(1, min(self.limits.batch_size, self.limits.cost // max(1, first.cost)))
            batch = [job for job in self.queue if job.options == first.options][:size]
            if len(batch) < size and len(self.queue) < self.limits.batch_size:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.arrived.wait(), self.limits.wait_ms / 1000)
                    continue
            self.queue = [job for job in self.queue if job not in batch]
            return batch


class CaptioningService:
    """Answers the requests of [`create_app`]'s application."""

    def __init__(self, pipeline: CaptioningPipeline, limits: ServingLimits, name: str) -> None:
        self.pipeline, self.limits, self.name = pipeline, limits, name
        self.reader = RequestReader(pipeline, limits)
        self.batcher = Batcher(self.caption_batch, limits)
        self.statuses: Counter[int] = Counter()

    def caption_batch(self, images: list, options: tuple) -> list:
        arguments = {key: value for key, value in options if key != "text"}  # the images already include the text
        arguments["return_scores"] = arguments.pop("scores", False)
        stop = StoppingCriteriaList([self.stop_if_abandoned])
        answers = self.pipeline(images, batch_size=len(images), on_error="skip", stopping_criteria=stop, **arguments)
        return [ValueError(answer["error"]) if answer.get("error") else answer for [answer, *_] in answers]

    def stop_if_abandoned(self, input_ids: torch.Tensor, scores: Any, **more: Any) -> torch.Tensor:
        if all(job.answer.done() for job in self.batcher.running):
            raise RuntimeError("All clients of this batch have disconnected.")
        return input_ids.new_zeros(len(input_ids), dtype=torch.bool)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        answering = asyncio.create_task(self.batcher.run())
        yield  # servers first answer the current requests
        answering.cancel()
        self.batcher.thread.shutdown()
        self.reader.threads.shutdown()

    async def caption(self, request: Request) -> Response:
        response = await self.answer(request)
        self.statuses[response.status_code] += 1
        return response

    async def answer(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(self.limits.seconds):
                self.batcher.check_room(1)
                answers = await unless_gone(request, self.batcher.submit(*await self.reader.read(request)))
        except RequestError as error:
            return refusal(error.status, str(error))
        except TimeoutError:
            return refusal(504, f"The answer took longer than {self.limits.seconds:g} seconds.")
        except ValueError as error:  # raised by the pipeline
            return refusal(400, f"{one_sentence(error)}.")
        except ClientDisconnect:
            return Response(status_code=CLIENT_GONE)
        except Exception as error:
            logger.exception("A batch of images was lost.")
            advice = "start the server with a smaller --batch-size" if is_out_of_memory(error) else "see its log"
            return refusal(500, f"The server could not caption the images ({type_and_reason(error)}); {advice}.")
        content: dict[str, list] = {"captions": [caption["generated_text"] for caption in answers]}
        if "score" in answers[0]:
            content["scores"] = [{"score": caption["score"], "words": caption["word_scores"]} for caption in answers]
        return JSONResponse(content)

    async def health(self, request: Request) -> Response:
        try:
            self.batcher.check_room(0)
        except RequestError as error:
            return refusal(error.status, str(error))
        return JSONResponse({"status": "ok", "model": self.name, "waiting": self.batcher.waiting})

    async def metrics(self, request: Request) -> PlainTextResponse:
        counts = {
            "batches_total": self.batcher.batches,
            "images_total": self.batcher.images,
            "waiting_images": self.batcher.waiting,
            **{f'requests_total{{status="{status}"}}': number for status, number in sorted(self.statuses.items())},
        }
        return PlainTextResponse("".join(f"hf_ngsan_{name} {value}\n" for name, value in counts.items()))


def create_app(pipeline: CaptioningPipeline, limits: ServingLimits | None = None, name: str = "") -> Starlette:
    """Makes the web application of a captioner.

    `POST /caption` accepts files of a form, or JSON `{"images": [base64, …]}`, with the options `num_beams`,
    `max_new_tokens`, `text` and `scores`. It answers `{"captions": [str, …]}`, or `{"error": str}` with a status: 400
    for a request that cannot be read, 413 for one that is too large, 500 if the model fails, 503 if too many images
    wait, 504 after the time limit. If `scores` is true, the answer also has `"scores"` with `score` and `words` of each
    caption (see [`~hf_ngsan.models.text_scores.TextScores`]). `GET /health` and `GET /metrics` (Prometheus) report the
    state. The application accepts any host name; wrap it in [`~hf_ngsan.serving.hosts.OwnHosts`] to check the name.

    Args:
        pipeline: pipeline of a captioner that reads images.
        limits: limits of requests.
        name: name of the model.
    """
    service = CaptioningService(pipeline, limits or ServingLimits(), name)
    routes = [
        Route("/caption", service.caption, methods=["POST"]),
        Route("/health", service.health),
        Route("/metrics", service.metrics),
    ]
    return Starlette(routes=routes, lifespan=service.lifespan)


def refusal(status: int, message: str) -> Response:
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": shortened(message, MAX_MESSAGE)}, status, headers)


async def unless_gone(request: Request, work: Coroutine[Any, Any, list]) -> list:
    """Returns the result of work; if the client disconnects first, cancels the work and raises a ClientDisconnect."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())  # the body has already been read
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        task.cancel()


class BoundedConnection(H11Protocol):
    """A connection with time limits.

    The head of a request must arrive within `seconds` after the connection or the previous answer, and its answer must
    have been read within twice that time. Otherwise the connection is closed.
    """

    def __init__(self, *arguments: Any, seconds: float, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.seconds = seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.deadline = self.loop.call_later(self.seconds, transport.abort)

    def allow(self, seconds: float) -> None:
        self.deadline.cancel()
        self.deadline = self.loop.call_later(seconds, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self.deadline.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self.allow(2 * self.seconds)

    def on_response_complete(self) -> None:
        self.allow(self.seconds)  # this time also applies to the rest of an incomplete body
        super().on_response_complete()  # this may start the next request


class BoundedServer(uvicorn.Server):
    """Serves an application within limits: `BoundedServer(app, limits).run([listening])`.

    Args:
        app: application of [`create_app`], or a wrapper of it, such as [`~hf_ngsan.serving.hosts.OwnHosts`].
        limits: uses `seconds` and `connections`; requests beyond these connections get status 503.
        options: further settings of `uvicorn.Config`, such as `log_level="info"` for an access log.
    """

    def __init__(self, app: Callable, limits: ServingLimits, **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(BoundedConnection, seconds=limits.seconds),  # type: ignore[arg-type]
                ws="none",
                limit_concurrency=limits.connections + 1,
                timeout_graceful_shutdown=math.ceil(limits.seconds),
                # Errors of requests are not logged by default: anybody could fill the disk.
                **{"log_level": "error", **options},
            )
        )

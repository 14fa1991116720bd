"""Gathers the images of many requests into batches, which one thread captions.

```python
batcher = Batcher(caption_images, limits)
await batcher.start()
captions = await batcher.submit(images, options=("num_beams", 3), cost=60)
```
"""

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .limits import BusyError, ServingLimits

MAX_DELAY = 0.25
"""Share of a request's time limit for which other images may overtake the last image of the costliest request."""
MAX_SHARES = 4
"""Shares of a batch: a request of many images gets at least one of these, however many images wait."""


class AbandonedError(RuntimeError):
    """No client waits for the answers of a batch any more."""


@dataclass(eq=False)
class Job:
    """An image of a request that waits for its caption.

    Images of one batch have the same options, the earliest `due` is first. The cost is beams x tokens.
    """

    image: Any
    request: object
    options: Hashable
    cost: int
    due: float
    answer: asyncio.Future


class Batcher:
    """Passes images that arrive within a few milliseconds to a model together.

    While the model works on a batch, the next batch fills, so that a busy server has full batches. Images are captioned
    in the order of their arrival, except that later images of a costly request wait for others for some time, and that
    no request takes more than its share of a batch while others wait.

    Args:
        work: captions a list of images with the same options, and returns an answer for each; called in one thread.
        limits: `batch_size`, `wait_ms`, `waiting`, `cost` and `seconds`.

    Attributes:
        batches, images: number of them so far.
        waiting: number of images without an answer.
        jobs, running: waiting images, the earliest `due` first, and images of the current batch.
    """

    task: asyncio.Task

    def __init__(self, work: Callable[[list, Any], Sequence], limits: ServingLimits) -> None:
        self.work = work
        self.limits = limits
        self.batches = self.images = self.waiting = 0
        self.jobs: list[Job] = []
        self.running: list[Job] = []
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, "hf_ngsan captioner")

    async def start(self) -> None:
        self.task = asyncio.create_task(self.run())

    async def stop(self) -> None:
        """Stops after all waiting images have their answers."""
        while asked := [job.answer for job in (*self.jobs, *self.running) if not job.answer.done()]:
            await asyncio.wait(asked)
        self.task.cancel()
        self.thread.shutdown()

    def check_room(self, number: int) -> None:
        """Raises a BusyError if there is no room for more waiting images."""
        if self.waiting + number > self.limits.waiting:
            raise BusyError(f"{self.waiting} images wait already")

    async def submit(self, images: Sequence, options: Hashable, cost: int = 0) -> list:
        """Returns an answer for each image.

        Args:
            images: inputs of the work.
            options: options of all images.
            cost: cost of each image, beams x tokens.

        Raises:
            BusyError: too many images wait already.
        """
        self.check_room(len(images))
        loop, request = asyncio.get_running_loop(), object()
        now, delay = loop.time(), MAX_DELAY * self.limits.seconds * cost / self.limits.cost
        jobs = [
            Job(image, request, options, cost, now + delay * number, loop.create_future())
            for number, image in enumerate(images, start=1)
        ]
        self.waiting += len(jobs)
        for job in jobs:
            job.answer.add_done_callback(self.count_done)
            insort(self.jobs, job, key=lambda one: one.due)
        self.arrived.set()
        try:
            return list(await asyncio.gather(*(job.answer for job in jobs)))
        finally:  # a disconnected client no longer waits
            for job in jobs:
                job.answer.cancel()

    def count_done(self, answer: asyncio.Future) -> None:
        self.waiting -= 1

    def is_abandoned(self) -> bool:
        """Returns whether no client waits for the current batch; may be called from other threads."""
        return all(job.answer.done() for job in self.running)

    async def run(self) -> None:
        while True:
            self.running = await self.gather()
            await self.answer([job for job in self.running if not job.answer.done()])

    async def gather(self) -> list[Job]:
        """Returns the jobs that arrive until a batch is full, or until none has arrived for the waiting time.

        Each job restarts the waiting time: after a batch its clients send their next images one after the other, and a
        batch of the first few would leave the others to a second one. Jobs with other options than the first one's
        stay in the queue for later batches.
        """
        while True:
            self.arrived.clear()
            self.jobs = [job for job in self.jobs if not job.answer.done()]  # without those of disconnected clients
            if not self.jobs:
                await self.arrived.wait()
                continue
            size = self.limits.batch_size
            if cost := self.jobs[0].cost:
                size = max(1, min(size, self.limits.cost // cost))
            batch = self.first_batch(size)
            if len(batch) == size or len(self.jobs) >= self.limits.batch_size:
                break
            try:
                await asyncio.wait_for(self.arrived.wait(), self.limits.wait_ms / 1000)
            except TimeoutError:
                break
        self.jobs = [job for job in self.jobs if job not in batch]
        return batch

    def first_batch(self, size: int) -> list[Job]:
        """Returns the first jobs that form a batch."""
        share = max(1, size // MAX_SHARES, size // len({job.request for job in self.jobs}))
        batch: list[Job] = []
        taken: Counter[object] = Counter()
        for job in self.jobs:
            if len(batch) < size and job.options == self.jobs[0].options and taken[job.request] < share:
                batch.append(job)
                taken[job.request] += 1
        return batch

    async def answer(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        self.batches += 1
        self.images += len(jobs)
        loop = asyncio.get_running_loop()
        try:
            images, options = [job.image for job in jobs], jobs[0].options
            answers = await loop.run_in_executor(self.thread, self.work, images, options)
        except (Exception, SystemExit) as error:  # which would end the loop that serves all others
            fault = error if isinstance(error, Exception) else RuntimeError(repr(error))
            answers = [fault] * len(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            if job.answer.done():
                continue
            if isinstance(answer, Exception):
                job.answer.set_exception(answer)
            else:
                job.answer.set_result(answer)

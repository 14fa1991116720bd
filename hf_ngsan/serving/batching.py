"""Gathers the images of many requests into batches, which one thread captions."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .limits import ServingLimits

Work = Callable[[list, Any], Sequence]


class BusyError(RuntimeError):
    """More images wait than are allowed to."""


@dataclass
class Job:
    """An image that waits for its caption; images of one batch have the same options."""

    image: Any
    options: Hashable
    answer: asyncio.Future


class Batcher:
    """Gives images that come within a few milliseconds of each other to a model together.

    While the model works on a batch, the next one gathers, so that a busy server has full batches.

    Args:
        work: captions a list of images with the same options, and returns an answer for each; called in one thread.
        limits: `batch_size`, `wait_ms` and `waiting`.

    Attributes:
        batches, images: number of them so far.
    """

    def __init__(self, work: Work, limits: ServingLimits) -> None:
        self.work = work
        self.limits = limits
        self.batches = self.images = self.waiting = 0
        self.jobs: asyncio.Queue[Job] = asyncio.Queue()
        self.thread = ThreadPoolExecutor(1, "hf_ngsan captioner")
        self.task: asyncio.Task | None = None

    async def start(self) -> None:
        self.task = asyncio.create_task(self.run())

    async def stop(self) -> None:
        """Ends when every image that waits has its answer."""
        await self.jobs.join()
        if self.task is not None:
            self.task.cancel()
        self.thread.shutdown()

    async def submit(self, images: Sequence, options: Hashable) -> list:
        """Returns an answer for each image.

        Raises:
            BusyError: too many images wait already.
        """
        if self.waiting + len(images) > self.limits.waiting:
            raise BusyError(f"{self.waiting} images wait already")
        loop = asyncio.get_running_loop()
        jobs = [Job(image, options, loop.create_future()) for image in images]
        self.waiting += len(jobs)
        for job in jobs:
            job.answer.add_done_callback(self.count_done)
            self.jobs.put_nowait(job)
        try:
            return list(await asyncio.gather(*(job.answer for job in jobs)))
        finally:  # a client that has gone waits for nothing
            for job in jobs:
                job.answer.cancel()

    def count_done(self, answer: asyncio.Future) -> None:
        self.waiting -= 1

    async def run(self) -> None:
        while True:
            batch = await self.gather()
            try:
                await self.answer([job for job in batch if not job.answer.done()])
            finally:
                for _ in batch:
                    self.jobs.task_done()

    async def gather(self) -> list[Job]:
        """Returns the jobs that come until a batch is full, or no more has come for the time to wait.

        The time begins anew with each job: when a batch is answered, its clients come back one after the other, and a
        batch of the first few of them would leave the others to a second one.
        """
        batch, seconds = [await self.jobs.get()], self.limits.wait_ms / 1000
        while len(batch) < self.limits.batch_size:
            try:
                batch.append(self.jobs.get_nowait())
            except asyncio.QueueEmpty:
                try:
                    batch.append(await asyncio.wait_for(self.jobs.get(), seconds))
                except TimeoutError:
                    break
        return batch

    async def answer(self, jobs: Sequence[Job]) -> None:
        loop = asyncio.get_running_loop()
        for options in dict.fromkeys(job.options for job in jobs):
            group = [job for job in jobs if job.options == options]
            self.batches += 1
            self.images += len(group)
            try:
                answers = await loop.run_in_executor(self.thread, self.work, [job.image for job in group], options)
            except Exception as error:
                answers = [error] * len(group)
            for job, answer in zip(group, answers, strict=True):
                if job.answer.done():
                    continue
                if isinstance(answer, Exception):
                    job.answer.set_exception(answer)
                else:
                    job.answer.set_result(answer)

"""Work of a command shared among the workers of a Ray cluster: shards of features or of an index, parts of captions."""

import importlib.util
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import torch

CLIENT_PORT = 10_001
"""The port of a cluster with an address `ray://HOST`."""
MAX_SECONDS = 10
"""How long a cluster may take to answer."""
MAX_ATTEMPTS = 3
"""Times that an item may be begun, on workers that die with it: Ray itself repeats it for ever."""


class RayError(ValueError):
    """A cluster that cannot be reached, or cannot do the work."""


class MissingRayError(RayError):
    """Ray is not installed; the message has the command that installs it."""


@dataclass(frozen=True)
class RayWorkers:
    """Workers of a Ray cluster, each with a copy of a model.

    All machines of the cluster need this package, and the same path to the images and the output (a shared disk).

    Attributes:
        address: of the cluster, such as `"auto"` or `"ray://host:10001"`; with `None` the one of the environment
            variable RAY_ADDRESS, else one that is running on this machine, else a new one on this machine.
        number: of workers; with `None` as many as there are processors, or GPUs for them.
        gpus_per_worker: GPUs of each worker, which may be a fraction.
    """

    address: str | None = None
    number: int | None = None
    gpus_per_worker: float = 0.0

    def share(
        self, model: torch.nn.Module, do: Callable[[Any], None], items: Sequence[Any], processors: int = 1
    ) -> Iterator[int]:
        """Does `do(item)` for every item, each on one of the workers, and yields the places of items that are done.

        An item whose worker has died is done again by another one, so `do` must be safe to repeat. An error of `do`
        stops everything.

        Args:
            model: moved to the device of a worker before it begins.
            do: uses the same object `model`; it is pickled together with it.
            items: given to the workers one at a time, in this order.
            processors: of each worker.

        Raises:
            MissingRayError: Ray is not installed.
            RayError: there is no such cluster, it has too few GPUs or processors, or workers keep dying.
            ValueError, OSError: raised by `do`.
        """
        if not items:
            return
        ray = import_ray()
        self.connect(ray)
        number = min(self.available(ray.cluster_resources(), processors), len(items))
        work = ray.put((model.cpu(), do, list(items)))
        attempts = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Attempts).remote()
        places = ray.data.from_items([{"place": place} for place in range(len(items))], override_num_blocks=len(items))
        done = places.map_batches(
            RayWorker,
            fn_constructor_args=(work, attempts, os.getcwd()),
            batch_size=1,
            concurrency=number,
            num_cpus=processors,
            num_gpus=self.gpus_per_worker,
        )
        try:
            for row in done.iter_rows():
                if row["error"] is not None:
                    raise row["error"]
                yield int(row["place"])
        except ray.exceptions.RayError as error:
            raise RayError(
                f"The Ray cluster could not finish the work ({' '.join(str(error).split())[:300]}); run the same "
                "command again to resume."
            ) from error

    def connect(self, ray: Any) -> None:
        if not ray.is_initialized():
            try:
                check_reachable(self.address or os.environ.get("RAY_ADDRESS", ""))
                ray.init(address=self.address, logging_level=logging.ERROR, log_to_driver=False)
            except (OSError, RuntimeError, ValueError) as error:
                raise RayError(
                    f"There is no Ray cluster at {self.address or 'this machine'} "
                    f"({' '.join(str(error).split())[:200]}); start one with ray start --head, or leave the address "
                    "out to use this machine."
                ) from error
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)

    def available(self, resources: dict[str, float], processors: int) -> int:
        """Returns the number of workers.

        Raises:
            RayError: the cluster has not enough for a single one.
        """
        wanted = {"CPU": processors, "GPU": self.gpus_per_worker}
        for name, each in wanted.items():
            if each > resources.get(name, 0.0):
                raise RayError(
                    f"A worker needs {each:g} {name}, and this Ray cluster has {resources.get(name, 0.0):g}; add "
                    "machines, or ask for less."
                )
        most = min(int(resources[name] / each) for name, each in wanted.items() if each)
        return most if self.number is None else min(self.number, most)


class Attempts:
    """An actor that counts how often each item was begun: a worker that dies cannot count.

    Ray starts it again on another machine if its own is lost.
    """

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def begin(self, place: int) -> int:
        self.counts[place] += 1
        return self.counts[place]


class RayWorker:
    """The work of one worker: a callable for `map_batches` that does one item at a time.

    Args:
        work: reference to the model, the function and the items.
        attempts: the actor [`Attempts`].
        folder: working directory of the command, which relative paths begin at.
    """

    def __init__(self, work: Any, attempts: Any, folder: str) -> None:
        import ray

        if os.path.isdir(folder):  # without it paths are absolute, or the work says what is missing
            os.chdir(folder)
        self.get, self.attempts = ray.get, attempts
        self.model, self.do, self.items = ray.get(work)
        self.model.to("cuda" if ray.get_gpu_ids() else "cpu")

    def __call__(self, batch: dict) -> dict:
        [place] = batch["place"].tolist()
        return {"place": [place], "error": [self.error_of(place)]}

    def error_of(self, place: int) -> Exception | None:
        if self.get(self.attempts.begin.remote(place)) > MAX_ATTEMPTS:
            return RayError(
                f"{MAX_ATTEMPTS} workers have died at the same images; they may lack memory: use fewer workers or a "
                "smaller --batch-size, and run the same command again to resume."
            )
        try:
            self.do(self.items[place])
        except (ValueError, OSError) as error:
            return error
        return None


def check_reachable(address: str) -> None:
    """Raises an OSError or ValueError for a cluster that does not answer; Ray itself would try for ten minutes."""
    url = urlsplit(address if "://" in address else f"//{address}")
    if address not in ("", "auto", "local") and url.scheme in ("", "ray"):
        socket.create_connection((url.hostname, url.port or CLIENT_PORT), MAX_SECONDS).close()


def import_ray() -> Any:
    if importlib.util.find_spec("ray") is None:
        raise MissingRayError('Several machines need Ray; install it with pip install "hf-ngsan[ray]".')
    import ray
    import ray.data

    return ray

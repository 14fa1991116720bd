"""Measurements that take turns in one process, so that other load affects all equally, and training steps for them."""

import statistics
import time
from collections.abc import Callable

import torch


class TrainingStep:
    """A model, its optimizer and one batch; a call takes a step: forward, backward and Adam in train mode."""

    def __init__(self, model: torch.nn.Module, batch: dict[str, torch.Tensor], device: str = "cpu"):
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        self.batch = {key: tensor.to(self.device) for key, tensor in batch.items()}

    def __call__(self) -> None:
        self.model.train()(**self.batch).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def seconds(self) -> float:
        """Returns the time of a step: processor time on a CPU, which is robust to other load on the machine."""
        if self.device.type != "cuda":
            start = time.process_time()
            self()
            return time.process_time() - start
        torch.cuda.synchronize()
        start = time.perf_counter()
        self()
        torch.cuda.synchronize()
        return time.perf_counter() - start


def in_turns(measures: dict[str, Callable[[], float]], pairs: int) -> dict[str, list[float]]:
    """Returns `pairs` values of each measure, taken in turns in alternating order, after one that is left out."""
    values: dict[str, list[float]] = {name: [] for name in measures}
    for measure in measures.values():
        measure()
    for pair in range(pairs):
        for name in list(measures)[:: 1 if pair % 2 else -1]:
            values[name].append(measures[name]())
    return values


def ratios(values: dict[str, list[float]]) -> list[float]:
    """Returns the values of the second measure divided by those of the first, for each pair."""
    return [ours / theirs for theirs, ours in zip(*values.values(), strict=True)]


def describe(values: list[float]) -> str:
    """Formats the median, and the smallest and largest value."""
    return f"{statistics.median(values):7.3f}   ({min(values):.3f} to {max(values):.3f})"

"""Splits the rows of an epoch into updates and micro-batches, and work among processes.

An update of 50 rows on 2 processes with 2 accumulation steps has 25 rows per process, in micro-batches of 12 and 13.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch.utils.data import DataLoader, Dataset

from ..data import EpochSampler, shuffle_buffer_of
from ..data.collator import visual_arguments
from ..data.contract import with_whole_arrays
from ..io.messages import ProgressDisplay
from ..models.processing_captioning import CaptioningProcessor, pad_visual_inputs
from .config import TrainingSettings


class MicroBatch(NamedTuple):
    """A part of a process's share of a global batch; a filler for an empty share has 0 rows and weight 0."""

    inputs: dict
    num_rows: int

    def to(self, device: torch.device) -> "MicroBatch":
        inputs = {name: tensor.to(device, non_blocking=device.type == "cuda") for name, tensor in self.inputs.items()}
        return MicroBatch(inputs, self.num_rows)


def batches_of_rows(rows: Sequence, settings: TrainingSettings) -> Callable[..., EpochSampler]:
    """Returns a function of `epoch`, `num_processes` and `process_index` that returns the batches of an epoch."""
    options: Any = {"seed": settings.seed, "drop_last": settings.drop_last, "window": shuffle_buffer_of(rows)}
    return partial(EpochSampler, len(rows), settings.batch_size, **options)


def take(rows: Sequence, indices: Iterable[int]) -> list[dict]:
    """Returns rows by their indices, in one read if the dataset supports it."""
    indices = list(indices)
    return rows.__getitems__(indices) if hasattr(rows, "__getitems__") else [rows[index] for index in indices]


class UpdateBatches(Dataset):
    """Dataset of updates: item i has at most `num_parts` micro-batches with the rows `shares[i]` of this process.

    If a row raises an error, the item is that error; a loader process would turn a raised error into a traceback.
    """

    def __init__(
        self,
        rows: Sequence,
        collate: Callable[[list], dict],
        shares: list[list[int]],
        num_parts: int,
        with_row_index: bool = False,
    ):
        self.rows, self.collate, self.shares = with_whole_arrays(rows), collate, shares
        self.num_parts, self.with_row_index = num_parts, with_row_index

    def __len__(self) -> int:
        return len(self.shares)

    def __getitem__(self, update: int) -> list[MicroBatch] | ValueError | OSError:
        parts = split_evenly(self.shares[update], self.num_parts)
        try:
            if not parts:
                return [MicroBatch(self.inputs([0]), num_rows=0)]
            return [MicroBatch(self.inputs(part), len(part)) for part in parts]
        except (ValueError, OSError) as error:
            return error

    def inputs(self, indices: list[int]) -> dict:
        inputs = self.collate(take(self.rows, indices))
        return {**inputs, "row_index": torch.tensor(indices)} if self.with_row_index else inputs


class FeatureCache:
    """Keeps the visual inputs of all training rows on a device; batches select theirs by `row_index`.

    The features of a row do not change. As without the cache, a batch has as many visual tokens as its longest row.
    """

    SHARE = 0.25  # share of the free GPU memory

    def __init__(self, rows: Sequence, device: torch.device) -> None:
        padded = pad_visual_inputs(**visual_arguments(take(with_whole_arrays(rows), range(len(rows)))))
        self.lengths = padded["attention_mask"].sum(1)
        self.inputs = {name: tensor.to(device) for name, tensor in padded.items()}

    @classmethod
    def of(cls, setting: str, rows: Any, collator: Any, device: torch.device) -> "FeatureCache | None":
        """Returns the cache of a training run, which then provides the features; None if unused or not possible."""
        if setting == "false" or not isinstance(getattr(collator, "processor", None), CaptioningProcessor):
            return None
        if collator.augment or not collator.with_images or rows[0].get("visual_features") is None:
            return None
        some = take(with_whole_arrays(rows), range(min(len(rows), 100)))
        size = 4 * len(rows) * max(numpy.size(row["visual_features"]) for row in some)
        if setting == "auto" and (device.type != "cuda" or size > cls.SHARE * torch.cuda.mem_get_info(device)[0]):
            return None
        collator.with_images = False
        return cls(rows, device)

    def complete(self, batch: "MicroBatch", keeps_row_index: bool) -> "MicroBatch":
        """Adds the visual inputs of a batch on the CPU."""
        rows = batch.inputs["row_index"]
        longest = int(self.lengths[rows].max())
        visual = {name: values[rows.to(values.device), :longest] for name, values in self.inputs.items()}
        others = {name: value for name, value in batch.inputs.items() if keeps_row_index or name != "row_index"}
        return MicroBatch({**visual, **others}, batch.num_rows)


def split_evenly(items: list, num_parts: int) -> list[list]:
    """Splits a list into at most `num_parts` consecutive, non-empty parts; their sizes differ by at most one."""
    num_parts = min(num_parts, len(items))
    bounds = [len(items) * part // num_parts for part in range(num_parts + 1)] if num_parts else [0]
    return [items[start:end] for start, end in pairwise(bounds)]


def update_loader(
    batches: UpdateBatches, first: int, num_workers: int, pin_memory: bool = False
) -> Iterator[list[MicroBatch]]:
    """Yields updates `first`, `first + 1`, ... in order, without touching the global random state."""
    options: dict[str, Any] = {"num_workers": num_workers, "pin_memory": pin_memory, "generator": torch.Generator()}
    loader = DataLoader(batches, batch_size=None, sampler=range(first, len(batches)), **options)
    for item in loader:
        if isinstance(item, ValueError | OSError):
            raise item
        yield item


def gather_rows(accelerator: Accelerator, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Concatenates the tensors `(n, ...)` of all processes, without graph; also returns the index of this process's."""
    if accelerator.num_processes == 1:
        return tensor.detach(), 0
    sizes = accelerator.gather(torch.tensor([len(tensor)], device=tensor.device)).tolist()
    padded = accelerator.gather(accelerator.pad_across_processes(tensor.detach()))
    parts = [part[:size] for part, size in zip(padded.split(max(sizes)), sizes, strict=True)]
    return torch.cat(parts), sum(sizes[: accelerator.process_index])


def map_sharded(
    work: Callable[[range], list],
    num_items: int,
    batch_size: int,
    accelerator: Accelerator | None = None,
    description: str = "evaluating",
) -> list:
    """Returns the results of all items in order, in every process; the processes take turns with batches.

    `work` returns one result for each index of a range of at most `batch_size`.
    """
    num_processes = accelerator.num_processes if accelerator else 1
    process_index = accelerator.process_index if accelerator else 0
    starts = range(0, num_items, batch_size)[process_index::num_processes]
    results: list[tuple[int, Any]] = []
    with ProgressDisplay(description, len(starts), unit="batches", shown=process_index == 0) as display:
        for number, start in enumerate(starts, start=1):
            indices = range(start, min(start + batch_size, num_items))
            results += zip(indices, work(indices), strict=True)
            display.update(number)
    shared = gather_object(results) if accelerator else results
    return [result for _, result in sorted(shared, key=lambda item: item[0])]

"""The order of rows and batches in an epoch, for any number of processes, and other reproducible random choices."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np


def digest(*parts: Any) -> bytes:
    """Returns 8 bytes that depend only on the `repr` of the arguments, in any process."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()


def generator_of(*parts: Any) -> np.random.Generator:
    """Returns a random generator that depends only on the `repr` of the arguments."""
    return np.random.default_rng(int.from_bytes(digest(*parts)))


class EpochSampler:
    """Yields, for one process, the row indices of its share of every batch of an epoch.

    The order of rows depends only on `seed` and `epoch`. The rows are split into global batches, and each process gets
    a contiguous, near-equal slice of each global batch. The slices of all processes together are the batches of a
    single process, and every process has the same number of batches. If a global batch has fewer rows than there are
    processes, some processes get an empty list.

    Can be used as the `batch_sampler` of a `torch.utils.data.DataLoader`.

    Args:
        num_rows: number of rows of the dataset.
        batch_size: number of rows of a *global* batch.
        seed, epoch: non-negative integers that determine the order.
        num_processes, process_index: number of processes that share the batches, and index of this one.
        shuffle: False keeps the order of the dataset.
        drop_last: whether to leave out an incomplete last global batch.
        start_batch: number of global batches to skip at the start, to resume in the middle of an epoch.
        window: shuffle only within windows of this many rows, for sequentially read rows. The windows keep their
            order, and `seed` and `epoch` shift their boundaries. `None`: shuffle all rows.
    """

    def __init__(
        self,
        num_rows: int,
        batch_size: int,
        *,
        seed: int,
        epoch: int = 0,
        num_processes: int = 1,
        process_index: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        start_batch: int = 0,
        window: int | None = None,
    ):
        if batch_size < 1 or start_batch < 0 or not 0 <= process_index < num_processes:
            shown = f"batch_size={batch_size}, start_batch={start_batch}, process {process_index} of {num_processes}"
            raise ValueError(f"These arguments do not describe a share of an epoch: {shown}.")
        self.num_rows, self.batch_size, self.seed = num_rows, batch_size, seed
        self.num_processes, self.process_index = num_processes, process_index
        self.shuffle, self.drop_last, self.window = shuffle, drop_last, window
        self.set_epoch(epoch, start_batch)

    def set_epoch(self, epoch: int, start_batch: int = 0) -> None:
        """Continues with another epoch, from the given global batch."""
        self.epoch, self.start_batch = epoch, start_batch

    @property
    def batches_per_epoch(self) -> int:
        return self.num_rows // self.batch_size if self.drop_last else -(-self.num_rows // self.batch_size)

    def __len__(self) -> int:
        """Returns the number of batches from `start_batch` on; it is the same in every process."""
        return self.batches_per_epoch - self.start_batch

    def __iter__(self) -> Iterator[list[int]]:
        order = self.row_order()
        for batch in self.batch_slices()[self.start_batch :]:
            rows = order[batch]
            first = len(rows) * self.process_index // self.num_processes
            end = len(rows) * (self.process_index + 1) // self.num_processes
            yield rows[first:end].tolist()

    def batch_slices(self) -> list[slice]:
        size = self.batch_size
        return [slice(batch * size, (batch + 1) * size) for batch in range(self.batches_per_epoch)]

    def row_order(self) -> np.ndarray:
        if not self.shuffle:
            return np.arange(self.num_rows)
        generator = self.generator()
        raw = generator.random_raw(self.num_rows)
        if self.window is None:
            return np.argsort(raw, kind="stable")
        shift = int(generator.random_raw() % self.window)
        return np.lexsort((raw, (np.arange(self.num_rows) + shift) // self.window))

    def generator(self, *salt: int) -> np.random.Philox:
        """Returns random bits that are the same for the same seed, epoch and salt."""
        # NumPy guarantees stable raw bits of a generator across versions, but not stable permutations.
        return np.random.Philox(np.random.SeedSequence([self.seed, self.epoch, *salt]))


class TokenSampler(EpochSampler):
    """Yields batches of rows of similar length, with a maximum number of tokens including padding.

    Rows are sorted by length (ties randomly) and split into batches; the order of batches is random. The lengths in the
    batches do not depend on the epoch, so every epoch has the same number of batches.

    Args:
        lengths: number of tokens of each row.
        batch_tokens: maximum tokens of a *global* batch: number of rows times the longest row. A longer row is a batch
            of one.
        options: see [`EpochSampler`].
    """

    def __init__(self, lengths: Sequence[int], batch_tokens: int, **options: Any):
        self.lengths = np.asarray(lengths)
        ordered = np.sort(self.lengths).tolist()
        self.bounds = [0] if ordered else []
        for row, length in enumerate(ordered):
            if row > self.bounds[-1] and (row + 1 - self.bounds[-1]) * length > batch_tokens:
                self.bounds.append(row)
        super().__init__(len(ordered), batch_tokens, **options)

    @property
    def batches_per_epoch(self) -> int:
        return len(self.bounds)

    def batch_slices(self) -> list[slice]:
        slices = [slice(start, end) for start, end in pairwise([*self.bounds, self.num_rows])]
        return [slices[batch] for batch in np.argsort(self.generator(1).random_raw(len(slices)), kind="stable")]

    def row_order(self) -> np.ndarray:
        order = super().row_order()
        return order[np.argsort(self.lengths[order], kind="stable")]

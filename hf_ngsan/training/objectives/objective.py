"""The interface of an objective, such as teacher forcing or a contrastive loss, to the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..batches import MicroBatch


@dataclass(frozen=True)
class Update:
    """Information about one update of the weights for an objective.

    Attributes:
        seed, step: the run's seed and the number of the update. Random choices for a row must be a function of these
            and of the row, so that they are the same for any number of processes.
        gather: concatenates tensors `(n, ...)` of any n over all processes; returns the whole and the index of this
            process's part. Every process must call it the same number of times.
        one_process: whether this is the only process. Then no gradients are exchanged, and outputs of the bare model
            may be backpropagated.
    """

    seed: int
    step: int
    gather: Callable[[torch.Tensor], tuple[torch.Tensor, int]] = lambda tensor: (tensor, 0)
    one_process: bool = False

    def keeps_graph(self, batches: Sequence[MicroBatch]) -> bool:
        """Returns whether [`Objective.prepare`] may keep a graph for the loss.

        That needs a single process, and one micro-batch, so that only one graph is in memory.
        """
        return self.one_process and len(batches) == 1


class Objective(ABC):
    """Turns batches into a sum of losses and the weight that the sum is divided by.

    The loop divides by the weight of the *global* batch - all processes, all accumulation steps - so that the update
    does not depend on how the batch was cut.
    """

    training_mode = True
    """Whether the model is in training mode, with dropout."""

    needs_row_index = False
    """Whether the loop adds `row_index (B,)` to each batch, the number of each training row."""

    def prepare(self, model: torch.nn.Module, batches: Sequence[MicroBatch], update: Update) -> list[dict]:
        """Completes all micro-batches of an update before any of their losses is computed.

        By default each is completed alone, by [`prepare_batch`][Objective.prepare_batch]. An objective whose loss joins
        rows of several micro-batches or processes, as in-batch negatives do, overrides this method.

        Args:
            model: the bare model.
            batches: this process's share of the global batch, on the model's device. A filler (`num_rows` 0) must not
                count.
            update: the update.

        Returns:
            For each micro-batch the inputs of [`weight`][Objective.weight] and [`loss`][Objective.loss].
        """
        return [self.prepare_batch(model, batch.inputs, update) for batch in batches]

    def prepare_batch(self, model: torch.nn.Module, inputs: dict, update: Update) -> dict:
        """Completes one micro-batch without gradients, for example by sampling."""
        return inputs

    @abstractmethod
    def weight(self, inputs: dict) -> torch.Tensor:
        """Returns the contribution of a micro-batch to the divisor, a scalar such as its number of target tokens."""

    @abstractmethod
    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Returns the summed loss, a scalar with gradient, and statistics: scalars that add up over micro-batches.

        Args:
            model: the model, wrapped for several processes and mixed precision; call it once.
            inputs: what [`prepare`][Objective.prepare] returned.
        """

    @abstractmethod
    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        """Returns the numbers to show, `loss` among them, from statistics summed over any stretch of training."""

    def describe(self, summary: dict[str, float]) -> str:
        """Returns the most important numbers of a summary for the progress bar and the line of an epoch."""
        return f"loss {summary['loss']:.4f}"

    def warnings(self, history: list[dict]) -> list[str]:
        """Returns warnings for the log, a sentence each, from the summaries of this stage's epochs so far."""
        return []

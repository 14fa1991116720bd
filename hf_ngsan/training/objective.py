"""What the training loop asks of an objective, such as teacher forcing or self-critical training."""

from abc import ABC, abstractmethod

import torch


class Objective(ABC):
    """Turns a batch into a sum of losses and the weight that the sum is divided by.

    The loop divides by the weight of the *global* batch - all processes, all accumulation steps - so that the update
    does not depend on how the batch was cut.
    """

    training_mode = True
    """Whether the model is in training mode, with dropout."""

    def prepare(self, model: torch.nn.Module, inputs: dict, draw: tuple[int, ...] = (0, 0)) -> dict:
        """Complete a batch without gradients before any loss of the update is computed, for example by sampling.

        Args:
            model: the bare model.
            inputs: the collated batch.
            draw: the seed and the number of the update; random choices for a row are to be a function of these and of
                the row, so that they are the same on any number of processes.
        """
        return inputs

    @abstractmethod
    def weight(self, inputs: dict) -> torch.Tensor:
        """What a batch contributes to the divisor, such as its number of target tokens; a scalar."""

    @abstractmethod
    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The summed loss, a scalar with gradient, and statistics: scalars that add up over batches and processes.

        Args:
            model: the model, wrapped for several processes and mixed precision; call it once.
            inputs: what [`prepare`][Objective.prepare] returned.
        """

    @abstractmethod
    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        """The numbers to show, `loss` among them, from statistics summed over any stretch of training."""

    def describe(self, summary: dict[str, float]) -> str:
        """The most important numbers of a summary for the progress bar and the line of an epoch."""
        return f"loss {summary['loss']:.4f}"

    def warnings(self, history: list[dict]) -> list[str]:
        """Sentences on what is amiss, from the summaries of this stage's epochs so far."""
        return []

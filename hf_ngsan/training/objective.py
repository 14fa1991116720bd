"""What the training loop asks of an objective: teacher forcing today, any other loss over the same batches tomorrow."""

from abc import ABC, abstractmethod

import torch


class Objective(ABC):
    """Turns a batch into a sum of losses and the weight that the sum is divided by.

    The loop divides by the weight of the *global* batch - all processes, all accumulation steps - so that the update
    does not depend on how the batch was cut.
    """

    def prepare(self, model: torch.nn.Module, inputs: dict) -> dict:
        """Complete a batch without gradients before any loss of the update is computed, for example by sampling."""
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

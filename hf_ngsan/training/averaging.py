"""Exponential moving average of a model's weights.

```python
average = WeightAverage(model, decay=0.999)
average.update(1)  # after each update of the optimizer
with average.applied():
    ...  # evaluate and save the averaged model
```
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class WeightAverage:
    """Running average of every floating-point weight and saved buffer of a model.

    After update n the average moves by `1 - min(decay, (1 + n) / (10 + n))` towards the weights, so that it soon
    forgets the random initial weights; this warm-up is that of TensorFlow's `ExponentialMovingAverage`.

    Args:
        model: the model, on its device, not wrapped for several processes.
        decay: between 0 and 1; the higher, the longer the memory.

    Attributes:
        tensors: the averages, by the names of the model's state dict.
    """

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        self.tensors = {name: tensor.clone() for name, tensor in self.weights.items()}

    @torch.no_grad()
    def update(self, num_updates: int) -> None:
        """Moves towards the current weights, after update number `num_updates`, counted from 1."""
        decay = min(self.decay, (1 + num_updates) / (10 + num_updates))
        for name, average in self.tensors.items():
            average.lerp_(self.weights[name], 1 - decay)

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Loads a saved average with the names and shapes of the model's weights."""
        copy_into(self.tensors, tensors)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Gives the model the averaged weights inside the `with` block, and its own, bit-exactly, after it."""
        own = {name: tensor.clone() for name, tensor in self.weights.items()}
        copy_into(self.weights, self.tensors)
        try:
            yield
        finally:
            copy_into(self.weights, own)


@torch.no_grad()
def copy_into(targets: dict[str, torch.Tensor], sources: dict[str, torch.Tensor]) -> None:
    for name, target in targets.items():
        target.copy_(sources[name])

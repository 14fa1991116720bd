"""Evaluation in the precision of the weights, whatever that of training."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision(model: torch.nn.Module) -> Iterator[None]:
    """Inside the `with` block a model that Accelerate prepared for mixed precision computes as it does when loaded.

    Args:
        model: not wrapped for several processes. Accelerate puts a `forward` that casts into the object itself.
    """
    mixed = model.__dict__.pop("forward", None)
    try:
        yield
    finally:
        if mixed is not None:
            model.__dict__["forward"] = mixed

"""Models too large for their weights files or for the machine, refused before any memory is taken."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
import torch
from torch import nn

MOST_PARAMETERS_A_BYTE = 2
"""Of the weights files: those of four bits."""
NOT_WORTH_REFUSING = 2**20
"""Parameters that cost no memory to speak of."""


class ModelTooLargeError(ValueError):
    """A configuration that describes a larger model than there is memory, or than there are weights for."""


def refuse_too_large(
    build: Callable[[], nn.Module], weights: str | os.PathLike | None = None, elsewhere: re.Pattern | None = None
) -> None:
    """Raises a ModelTooLargeError for a model that cannot be what its configuration says.

    Args:
        build: makes the model; it is called where tensors have a shape but take no memory.
        weights: folder, or name on the Hub, that the weights are loaded from; `None` for new ones.
        elsewhere: names of weights that do not come from there.
    """
    parameters = parameters_of(build)
    number, size = count(parameters.values()), sum(one.nbytes for one in parameters.values())
    memory = psutil.virtual_memory().total
    if size > memory:
        raise ModelTooLargeError(
            f"the configuration describes a model of {number:,} parameters, which take {size / 2**30:,.0f} GiB, and "
            f"this machine has {memory / 2**30:,.0f} GiB of memory"
        )
    number = count(one for name, one in parameters.items() if elsewhere is None or not elsewhere.search(name))
    stored = 0 if weights is None else size_of_weights(Path(weights))
    if stored and number > max(MOST_PARAMETERS_A_BYTE * stored, NOT_WORTH_REFUSING):
        raise ModelTooLargeError(
            f"the configuration describes {number:,} parameters, and the weights files in {weights} have {stored:,} "
            "bytes"
        )


def parameters_of(build: Callable[[], nn.Module]) -> dict[str, nn.Parameter]:
    """Returns the parameters of a model by name, shared ones once; `build` makes it, which takes no memory here."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return dict(build().named_parameters())


def count(parameters: Iterable[nn.Parameter]) -> int:
    """Returns the number of parameters; buffers, such as running means, which files of weights have too, are none."""
    return sum(one.numel() for one in parameters)


def size_of_weights(folder: Path) -> int:
    """Returns the bytes in the weights files of a folder; 0 for what is no folder."""
    return sum(file.stat().st_size for pattern in ("*.safetensors", "*.bin") for file in folder.glob(pattern))

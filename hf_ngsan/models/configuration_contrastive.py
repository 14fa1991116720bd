"""The comparison of images and texts by a dual encoder: fields of its configuration and settings of its training.

A training config is read without torch, so this file does not import it.
"""

from dataclasses import dataclass, field
from typing import Any

LOSSES = ("hardest", "all", "info_nce")
REDUCTIONS = ("mean", "sum")


def described(default: Any, help: str, **bounds: Any) -> Any:
    """Returns a field with what a training config says of it."""
    return field(default=default, metadata={"help": help, "free_on_resume": False, **bounds})


@dataclass(unsafe_hash=True)
class ContrastiveSettings:
    """Fields of a dual encoder's configuration, and settings of its training: the comparison of images and texts."""

    loss: str = described("hardest", "hardest, all = triplets of hardest or all negatives, or info_nce", choices=LOSSES)
    hardest_negatives: int = described(1, "hardest: how many negatives, on each side of a pair", minimum=1)
    negated_positives: bool = described(False, "hardest: a pair may be its own negative, as MHSAN was released")
    margin: float | int = described(
        0.2, "triplet losses: by how much a pair shall be more similar than a negative", minimum=0
    )
    temperature: float | int = described(0.07, "info_nce: similarities are divided by it", minimum=1e-4)
    loss_reduction: str = described("mean", "over the pairs of a batch: mean or sum", choices=REDUCTIONS)
    diversity_weight: float | int = described(0.0, "weight of the penalty for heads that are alike", minimum=0)
    squared_diversity: bool = described(True, "whether that penalty is squared, as in eq. 5 of Park et al. 2020")

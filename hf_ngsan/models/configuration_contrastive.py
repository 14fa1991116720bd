"""Settings of the contrastive loss of a dual encoder: fields of its configuration and of its training.

A training config is read without torch, so this file does not import it.
"""

from dataclasses import dataclass, field
from typing import Any

LOSSES = ("hardest", "all", "info_nce")
REDUCTIONS = ("mean", "sum")


def described(default: Any, help: str, **bounds: Any) -> Any:
    """Returns a field with its help text and bounds for training configs."""
    return field(default=default, metadata={"help": help, "free_on_resume": False, **bounds})


@dataclass(unsafe_hash=True)
class ContrastiveSettings:
    """Settings of the contrastive loss: fields of a dual encoder's configuration and of its training."""

    loss: str = described("hardest", "hardest, all (triplets with these negatives) or info_nce", choices=LOSSES)
    hardest_negatives: int = described(1, "hardest: number of negatives on each side of a pair", minimum=1)
    negated_positives: bool = described(False, "hardest: a pair may be its own negative, as in the release")
    margin: float | int = described(
        0.2, "triplet losses: margin between the similarities of a pair and of a negative", minimum=0
    )
    temperature: float | int = described(0.07, "info_nce: similarities are divided by it", minimum=1e-4)
    loss_reduction: str = described("mean", "reduction over the pairs of a batch: mean or sum", choices=REDUCTIONS)
    diversity_weight: float | int = described(0.0, "weight of the penalty for similar heads", minimum=0)
    squared_diversity: bool = described(True, "whether that penalty is squared, as in eq. 5 of Park et al. 2020")

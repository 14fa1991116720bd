"""Teacher forcing: cross-entropy of each caption word given the image and the words before it."""

from typing import Any

import torch
from torch.nn import functional

from .objective import Objective, Update

IGNORED_LABEL = -100


class TeacherForcing(Objective):
    """Cross-entropy over target tokens.

    Args:
        label_smoothing: share of the target that is spread evenly over the vocabulary.

    A batch holds `labels (B * C, T)`, -100 where there is no target, and the model's other inputs; with
    `caption_weights (B * C,)` the words of each caption count that much, in the loss and in the divisor.
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing

    def prepare_batch(self, model: Any, inputs: dict, update: Update) -> dict:
        return {**inputs, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(inputs["labels"])}

    def weight(self, inputs: dict) -> torch.Tensor:
        return token_weights(inputs["labels"], inputs.get("caption_weights")).sum()

    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        inputs = dict(inputs)
        labels, weights = inputs.pop("labels"), inputs.pop("caption_weights", None)
        logits = model(**inputs, use_cache=False).logits
        losses = functional.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.flatten(),
            ignore_index=IGNORED_LABEL,
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        weights = token_weights(labels, weights)
        loss = (losses * weights.flatten()).sum()
        targets = labels != IGNORED_LABEL
        correct = ((logits.argmax(-1) == labels) & targets).sum()
        counts = {"weight": weights.sum(), "tokens": targets.sum(), "correct_tokens": correct}
        return loss, {"loss": loss.detach(), **counts}

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["weight"], "token_accuracy": sums["correct_tokens"] / sums["tokens"]}


def token_weights(labels: torch.Tensor, caption_weights: torch.Tensor | None) -> torch.Tensor:
    """Returns what each target token counts, `(B * C, T)`: 0 at padding, else 1 or the weight of its caption."""
    targets = (labels != IGNORED_LABEL).float()
    return targets if caption_weights is None else targets * caption_weights[:, None]

"""Teacher forcing: cross-entropy of each caption word given the image and the words before it."""

import torch
from torch.nn import functional

from .objective import Objective

IGNORED_LABEL = -100


class TeacherForcing(Objective):
    """Cross-entropy over target tokens.

    Args:
        label_smoothing: share of the target that is spread evenly over the vocabulary.

    A batch holds `labels (B * C, T)`, -100 where there is no target, and the model's other inputs.
    """

    def __init__(self, label_smoothing: float = 0.0):
        self.label_smoothing = label_smoothing

    def prepare(self, model: torch.nn.Module, inputs: dict) -> dict:
        return {**inputs, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(inputs["labels"])}

    def weight(self, inputs: dict) -> torch.Tensor:
        return (inputs["labels"] != IGNORED_LABEL).sum()

    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        logits = model(**inputs, use_cache=False).logits
        loss = functional.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.flatten(),
            ignore_index=IGNORED_LABEL,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        targets = labels != IGNORED_LABEL
        correct = ((logits.argmax(-1) == labels) & targets).sum()
        return loss, {"loss": loss.detach(), "tokens": targets.sum(), "correct_tokens": correct}

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["tokens"], "token_accuracy": sums["correct_tokens"] / sums["tokens"]}

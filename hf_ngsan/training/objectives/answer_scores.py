"""Binary cross-entropy of every answer with its score as a soft target, since several answers may be right."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from .objective import Objective


class AnswerScores(Objective):
    """Binary cross-entropy of each row, summed over the answers, as in MCAN's released code.

    A batch holds `labels (B, A)`, the score in [0, 1] of each of A answers, and the model's other inputs.
    """

    def weight(self, inputs: dict) -> torch.Tensor:
        return torch.tensor(float(len(inputs["labels"])), device=inputs["labels"].device)

    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        logits = model(**inputs).logits.float()
        loss = binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        score = labels.gather(-1, logits.argmax(-1, keepdim=True)).sum()
        return loss, {"loss": loss.detach(), "score": score, "answered": self.weight({"labels": labels})}

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["answered"], "answer_score": sums["score"] / sums["answered"]}

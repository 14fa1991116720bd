"""Teacher forcing: cross-entropy of each caption word given the image and the previous words."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from ...data.collator import IGNORED_LABEL
from ..task import Objective, Update


@dataclass(frozen=True)
class Distillation:
    """Probabilities of a trained captioner as targets in addition to the words of captions (Hinton et al. 2015).

    The loss of a word is (1 - weight) * cross-entropy + weight * temperature^2 * KL(teacher || captioner); the
    temperature softens both probabilities. The teacher, a captioner or ensemble with the same vocabulary and inputs as
    the trained captioner, reads all words, including those that word dropout hides from the captioner.
    """

    teacher: Any
    weight: float = 0.5
    temperature: float = 1.0

    @torch.no_grad()
    def targets(self, inputs: dict) -> torch.Tensor:
        """Returns the teacher's log-probabilities `(B * C, T, vocab_size)` for inputs with `decoder_input_ids`."""
        arguments = {name: value for name, value in inputs.items() if name not in ("labels", "caption_weights")}
        teacher = self.teacher.to(inputs["labels"].device).eval()
        return (teacher(**arguments).logits.float() / self.temperature).log_softmax(-1)

    def losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Returns temperature^2 * KL(teacher || captioner) of each word, `(B * C, T)`."""
        log_probabilities = (logits.float() / self.temperature).log_softmax(-1)
        return self.temperature**2 * (targets.exp() * (targets - log_probabilities)).sum(-1)


class TeacherForcing(Objective):
    """Trains a captioner with the cross-entropy of target tokens.

    Args:
        label_smoothing: share of the target that is spread evenly over the vocabulary.
        word_dropout: share of the previous words (except the first token) that are randomly replaced by the unknown
            word (Bowman et al. 2016, section 3.1), so that predictions depend more on the image.
        unknown_token_id: the unknown word; needed for word dropout.
        distillation: a trained captioner as a teacher, *optional*.

    A batch has `labels (B * C, T)`, with -100 where there is no target, and the model's other inputs. The optional
    `caption_weights (B * C,)` weigh the words of each caption, in the loss and in the divisor.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        word_dropout: float = 0.0,
        unknown_token_id: int | None = None,
        distillation: Distillation | None = None,
    ) -> None:
        self.label_smoothing = label_smoothing
        self.word_dropout, self.unknown_token_id = word_dropout, unknown_token_id
        self.distillation = distillation

    def prepare_batch(self, model: Any, inputs: dict, update: Update) -> dict:
        inputs = {**inputs, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(inputs["labels"])}
        if self.distillation is not None:
            inputs["teacher_log_probs"] = self.distillation.targets(inputs)
        return inputs

    def weight(self, inputs: dict) -> torch.Tensor:
        return token_weights(inputs["labels"], inputs.get("caption_weights")).sum()

    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        inputs = dict(inputs)
        labels, weights = inputs.pop("labels"), inputs.pop("caption_weights", None)
        taught = inputs.pop("teacher_log_probs", None)
        if self.word_dropout and model.training:
            words = inputs["decoder_input_ids"]
            kept = functional.dropout(torch.ones_like(words, dtype=torch.float32), self.word_dropout) > 0
            kept[:, 0] = True
            inputs["decoder_input_ids"] = words.where(kept, self.unknown_token_id)
        logits = self.logits(model, inputs)
        options: dict[str, Any] = {"ignore_index": IGNORED_LABEL, "label_smoothing": self.label_smoothing}
        flat = logits.flatten(0, 1).float()
        losses = functional.cross_entropy(flat, labels.flatten(), reduction="none", **options)
        if self.distillation is not None and taught is not None:
            share = self.distillation.weight
            losses = (1 - share) * losses + share * self.distillation.losses(logits, taught).flatten()
        weights = token_weights(labels, weights)
        loss = (losses * weights.flatten()).sum()
        targets = labels != IGNORED_LABEL
        correct = ((logits.argmax(-1) == labels) & targets).sum()
        counts = {"weight": weights.sum(), "tokens": targets.sum(), "correct_tokens": correct}
        return loss, {"loss": loss.detach(), **counts}

    def logits(self, model: torch.nn.Module, inputs: dict) -> torch.Tensor:
        """Returns the logits of the target tokens, `(B * C, T, vocab_size)`."""
        return model(**inputs, use_cache=False).logits

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["weight"], "token_accuracy": sums["correct_tokens"] / sums["tokens"]}


def token_weights(labels: torch.Tensor, caption_weights: torch.Tensor | None) -> torch.Tensor:
    """Returns the weight of each target token, `(B * C, T)`: 0 at padding, otherwise 1 or the caption's weight."""
    targets = (labels != IGNORED_LABEL).float()
    return targets if caption_weights is None else targets * caption_weights[:, None]

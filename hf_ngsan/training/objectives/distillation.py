"""On-policy distillation on captions sampled from the captioner; any images can be used (Agarwal et al. 2024)."""

from typing import Any

import torch

from ...data.collator import IGNORED_LABEL
from ..task import Objective, Update
from .policy import Policy, beam_search, encode_images, image_uniforms, labels_of, sampling_generate


class OnPolicyDistillation(Objective):
    """Minimizes KL(teacher || captioner) of the next word, at each word of captions sampled from the captioner.

    Captions are sampled in evaluation mode; the loss is computed with dropout. Words that are never generated, such as
    the unknown word, are left out of both distributions. The teacher, a captioner or an ensemble, must have the same
    vocabulary and inputs. The temperature softens both distributions; the loss is multiplied by its square. A batch has
    `row_index (B,)`, the number of each training row, and the model's visual inputs.
    """

    training_mode = False
    needs_row_index = True

    def __init__(self, teacher: Any, policy: Policy, samples_per_image: int = 5, temperature: float = 1.0) -> None:
        self.teacher, self.policy = teacher, policy
        self.samples_per_image, self.temperature = samples_per_image, temperature

    @torch.no_grad()
    def prepare_batch(self, model: Any, inputs: dict, update: Update) -> dict:
        names = ("row_index", "labels", "caption_weights")
        visual = {name: value for name, value in inputs.items() if name not in names}
        keys = [(update.seed, update.step, row) for row in inputs["row_index"].tolist()]
        uniforms = image_uniforms(keys, self.samples_per_image, self.policy.max_new_tokens)
        states, mask = encode_images(model, visual)
        draw = sampling_generate(self.policy, uniforms.to(states.device))
        samples = beam_search(model, self.policy, states, mask, custom_generate=draw)
        labels = labels_of(samples, self.policy.eos_token_id)
        visual["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
        teacher = self.teacher.to(labels.device).eval()
        taught = self.log_probabilities(teacher(**visual).logits, labels)
        return {**visual, "labels": labels, "teacher_log_probs": taught}

    def log_probabilities(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Returns log-probabilities `(targets, words)` of the words that can be generated, at each target."""
        sayable = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
        sayable[list(self.policy.suppressed_tokens)] = False
        chosen = logits[labels != IGNORED_LABEL][:, sayable].float()
        return (chosen / self.temperature).log_softmax(-1)

    def weight(self, inputs: dict) -> torch.Tensor:
        return (inputs["labels"] != IGNORED_LABEL).sum().float()

    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        inputs = dict(inputs)
        labels, taught = inputs.pop("labels"), inputs.pop("teacher_log_probs")
        model.train()
        logits = model(**inputs, use_cache=False).logits
        model.eval()
        log_probabilities = self.log_probabilities(logits, labels)
        loss = self.temperature**2 * (taught.exp() * (taught - log_probabilities)).sum()
        with torch.no_grad():
            statistics = {
                "loss": loss,
                "words": torch.tensor(float(len(log_probabilities))),
                "samples": torch.tensor(float(len(labels))),
                "agreed": (log_probabilities.argmax(-1) == taught.argmax(-1)).sum(),
            }
        return loss, statistics

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        """Returns the mean `loss` per word in nats, `teacher_agreement` in [0, 1] and `caption_length` in tokens."""
        return {
            "loss": sums["loss"] / sums["words"],
            "teacher_agreement": sums["agreed"] / sums["words"],
            "caption_length": sums["words"] / sums["samples"],
        }

    def describe(self, summary: dict[str, float]) -> str:
        agreement, length = summary["teacher_agreement"], summary["caption_length"]
        return f"loss {summary['loss']:.4f}, {agreement:.1%} of words as the teachers, {length:.1f} tokens"

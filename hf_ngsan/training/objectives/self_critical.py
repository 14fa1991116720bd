r"""Self-critical training: captions sampled from the model become more or less likely, depending on their reward.

The loss of a sampled caption w is -(r(w) - b) log p(w). Its gradient estimates that of the negative expected reward
(REINFORCE; eq. 5-8 of Rennie et al. 2017). The baseline b lowers the variance:

- `"greedy"`: the reward of the greedy caption (eq. 9 of Rennie et al. 2017);
- `"mean"`: the mean reward of the image's k samples (eq. 27-28 of Zhang et al. 2021, RSTNet). Because it contains r(w),
  the estimate is (k - 1) / k of the gradient;
- `"leave_one_out"`: the mean reward of the other k - 1 samples; the estimate is unbiased.

With beam search instead of sampling, as in RSTNet, the k beams are not samples from the policy, and the estimate is
biased for any baseline.
"""

import math
from collections.abc import Sequence, Set
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from ...data.collator import IGNORED_LABEL
from ..batches import MicroBatch
from ..config import SelfCriticalSettings
from ..task import Objective, Update
from .policy import Policy, beam_search, encode_images, image_uniforms, labels_of, sampling_generate
from .self_critical_rewards import CaptionRewards

MAX_BAD_ENDINGS = 0.05  # share above which training warns; 1.4% of COCO's references end badly
COLLAPSE = 2.0  # nats per word that references may lose (7 times less likely) before a rising reward causes a warning


class SelfCritical(Objective):
    """Trains a captioner with REINFORCE and a baseline, on k sampled captions of each image.

    Captions are sampled in evaluation mode and without a graph; their log-probabilities come from one teacher-forced
    pass. By default, this pass has no dropout either, so that the gradient is that of the sampled distribution. With
    `settings.dropout`, the pass is regularized and the estimate is biased. The loss is the mean over samples of the sum
    over words, including the end token. A batch has `row_index (B,)`, the number of each training row, the model's
    visual inputs, and `labels (B * C, T)`.
    """

    training_mode = False
    needs_row_index = True

    def __init__(
        self,
        rewards: CaptionRewards,
        settings: SelfCriticalSettings,
        policy: Policy,
        bad_ending_ids: Set[int] = frozenset(),
    ) -> None:
        self.rewards, self.settings, self.policy = rewards, settings, policy
        self.bad_ending_ids = torch.tensor(sorted(bad_ending_ids), dtype=torch.long)

    def prepare(self, model: torch.nn.Module, batches: Sequence[MicroBatch], update: Update) -> list[dict]:
        """Samples and rewards captions; if possible, the loss reuses the encoder states, so images are encoded once."""
        keeps_graph = update.keeps_graph(batches) and not self.settings.dropout
        return [self.prepare_batch(model, batch.inputs, update, keeps_graph) for batch in batches]

    def prepare_batch(self, model: Any, inputs: dict, update: Update, keeps_graph: bool = False) -> dict:
        visual = dict(inputs)
        rows, references = visual.pop("row_index"), visual.pop("labels", None)
        visual.pop("caption_weights", None)
        encoded, visual = self.encode(model, visual, keeps_graph)
        with torch.no_grad():
            samples, greedy = self.draw_captions(model, encoded, rows, update)
            rewards, baselines = self.reward(samples, greedy, rows)
            labels = labels_of(samples, self.policy.eos_token_id)
            statistics = {
                **self.statistics_of_captions(samples, labels, rewards, baselines),
                **self.statistics_of_references(model, encoded, references, len(rows)),
            }
        return {
            **self.with_captions(model, visual, labels),
            "labels": labels,
            "advantages": (rewards - baselines).flatten(),
            "statistics": statistics,
        }

    def encode(self, model: Any, visual: dict, keeps_graph: bool) -> tuple[dict, dict]:
        """Returns the inputs for sampling captions, without a graph, and those for the loss."""
        frozen = self.settings.freeze_encoder
        with torch.set_grad_enabled(keeps_graph and not frozen):
            states, mask = encode_images(model, visual)
        if keeps_graph or frozen:
            visual = {"encoder_outputs": BaseModelOutput(last_hidden_state=states), "attention_mask": mask}
        states = states.detach()
        return {"encoder_outputs": BaseModelOutput(last_hidden_state=states), "attention_mask": mask}, visual

    def with_captions(self, model: Any, visual: dict, labels: torch.Tensor) -> dict:
        """Returns the inputs of the bare model for captions `labels (B * k, T)` of B images."""
        return {**visual, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels)}

    def logits(self, model: torch.nn.Module, inputs: dict) -> torch.Tensor:
        """Returns the logits of inputs of `with_captions`, `(B * k, T, vocab_size)`."""
        return model(**inputs, use_cache=False).logits

    def draw_captions(
        self, model: PreTrainedModel, encoded: dict, rows: torch.Tensor, update: Update
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns ids `(B * k, T)` of k captions per image, and `(B, T')` of the greedy captions if needed."""
        states, mask = encoded["encoder_outputs"].last_hidden_state, encoded["attention_mask"]
        if self.settings.decoding == "beam":
            samples = beam_search(model, self.policy, states, mask, num_beams=self.settings.samples_per_image)
        else:
            draw = sampling_generate(self.policy, self.uniforms(rows, update).to(states.device))
            samples = beam_search(model, self.policy, states, mask, custom_generate=draw)
        greedy = beam_search(model, self.policy, states, mask) if self.settings.baseline == "greedy" else None
        return samples, greedy

    def uniforms(self, rows: torch.Tensor, update: Update) -> torch.Tensor:
        """Returns random numbers for the captions of an update, `(B * k, max_new_tokens)`."""
        keys = [(update.seed, update.step, row) for row in rows.tolist()]
        return image_uniforms(keys, self.settings.samples_per_image, self.policy.max_new_tokens)

    def reward(
        self, samples: torch.Tensor, greedy: torch.Tensor | None, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns rewards and baselines of the samples, both `(B, k)`."""
        number, baseline = self.settings.samples_per_image, self.settings.baseline
        images = rows.repeat_interleave(number)
        if greedy is not None:
            width = max(samples.shape[1], greedy.shape[1])
            padded = [pad(ids, (0, width - ids.shape[1]), value=self.policy.pad_token_id) for ids in (samples, greedy)]
            samples = torch.cat(padded)
            images = torch.cat([images, rows])
        scores = self.rewards(samples, images)
        scores = scores - self.settings.bad_ending_penalty * self.ends_badly(samples)
        rewards = scores[: len(rows) * number].view(len(rows), number)
        if baseline == "greedy":
            return rewards, scores[len(rows) * number :, None].expand_as(rewards)
        mean = rewards.mean(-1, keepdim=True)
        return rewards, mean.expand_as(rewards) if baseline == "mean" else (mean * number - rewards) / (number - 1)

    def ends_badly(self, samples: torch.Tensor) -> torch.Tensor:
        """Returns a mask `(R,)` of the captions `(R, T)` that end with a word like "a" or "of", or do not end."""
        is_end = samples == self.policy.eos_token_id
        is_word = is_end.cumsum(-1) == 0
        last = samples.gather(-1, (is_word.sum(-1) - 1).clamp(min=0)[:, None]).squeeze(-1)
        return ~is_end.any(-1) | torch.isin(last, self.bad_ending_ids.to(last.device))

    def statistics_of_captions(
        self, samples: torch.Tensor, labels: torch.Tensor, rewards: torch.Tensor, baselines: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        advantages = rewards - baselines
        is_word = (labels != IGNORED_LABEL) & (labels != self.policy.eos_token_id)
        return {
            "samples": torch.tensor(float(len(labels))),
            "reward": rewards.sum(),
            "baseline": baselines.sum(),
            "advantages": advantages.sum(),
            "squared_advantages": advantages.square().sum(),
            "words": is_word.sum(),
            "bad_endings": self.ends_badly(samples).sum(),
        }

    def statistics_of_references(
        self, model: Any, encoded: dict, references: torch.Tensor | None, num_images: int
    ) -> dict[str, torch.Tensor]:
        """Returns the log-likelihood of the first reference of each image; a low one is a sign of reward hacking."""
        if references is None:
            return {}
        references = references.view(num_images, -1, references.shape[-1])[:, 0]
        logits = self.logits(model, self.with_captions(model, encoded, references)).float()
        is_word = references != IGNORED_LABEL
        log_probabilities = logits.log_softmax(-1).gather(-1, references.clamp(min=0)[..., None]).squeeze(-1)
        return {"reference_log_likelihood": (log_probabilities * is_word).sum(), "reference_words": is_word.sum()}

    def weight(self, inputs: dict) -> torch.Tensor:
        return torch.full((), float(len(inputs["labels"])), device=inputs["labels"].device)

    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        inputs = dict(inputs)
        labels, advantages, statistics = (inputs.pop(name) for name in ("labels", "advantages", "statistics"))
        model.train(self.settings.dropout)
        logits = self.logits(model, inputs)
        model.eval()
        is_word = labels != IGNORED_LABEL
        places, words = is_word.flatten().nonzero().squeeze(-1), labels[is_word]
        log_policy = self.policy.logits(logits.flatten(0, 1).index_select(0, places), chosen=words).log_softmax(-1)

        def in_captions(values: torch.Tensor) -> torch.Tensor:
            return values.new_zeros(labels.numel()).index_copy(0, places, values).view_as(labels)

        log_probabilities = in_captions(log_policy.gather(-1, words[:, None]).squeeze(-1))
        loss = -(log_probabilities.sum(-1) * advantages.to(log_probabilities)).sum()
        with torch.no_grad():
            # for words that cannot be sampled, the product is 0 * -inf
            entropy = -(log_policy.exp() * log_policy).nansum()
            is_greedy = ~in_captions(log_policy.argmax(-1) != words).any(-1)
        terms = {"loss": loss, "entropy": entropy, "steps": is_word.sum(), "greedy_samples": is_greedy.sum()}
        return loss, {**statistics, **terms}

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        """Returns means over samples, and `entropy` (per step) and `reference_log_likelihood` (per word) in nats."""
        samples = sums["samples"]
        variance = sums["squared_advantages"] / samples - (sums["advantages"] / samples) ** 2
        summary = {name: sums[name] / samples for name in ("loss", "reward", "baseline")}
        summary |= {
            "advantage_spread": math.sqrt(max(variance, 0.0)),
            "entropy": sums["entropy"] / max(sums["steps"], 1),
            "caption_length": sums["words"] / samples,
            "bad_endings": sums["bad_endings"] / samples,
            "greedy_samples": sums["greedy_samples"] / samples,
        }
        if sums.get("reference_words"):
            summary["reference_log_likelihood"] = sums["reference_log_likelihood"] / sums["reference_words"]
        return summary

    def describe(self, summary: dict[str, float]) -> str:
        return (
            f"reward {summary['reward']:.3f}, baseline {summary['baseline']:.3f} ± {summary['advantage_spread']:.3f}, "
            f"entropy {summary['entropy']:.2f}, {summary['caption_length']:.1f} words, "
            f"{summary['bad_endings']:.1%} bad endings, {summary['greedy_samples']:.0%} greedy"
        )

    def warnings(self, history: list[dict]) -> list[str]:
        first, last = history[0], history[-1]
        warnings = []
        if last["bad_endings"] > MAX_BAD_ENDINGS:
            warnings.append(
                f"{last['bad_endings']:.1%} of the sampled captions end badly, with a word like 'a' or 'of' or without "
                "an end: look at max_new_tokens, or set self_critical.bad_ending_penalty."
            )
        fallen = first.get("reference_log_likelihood", 0.0) - last.get("reference_log_likelihood", 0.0)
        if last["reward"] > first["reward"] and fallen > COLLAPSE:
            warnings.append(
                f"the reward rises, but a word of the reference captions has become {math.exp(fallen):.1f} times less "
                "likely since the first self-critical epoch: the model may be exploiting the reward; lower "
                "self_critical.learning_rate, stop earlier or add another reward."
            )
        return warnings

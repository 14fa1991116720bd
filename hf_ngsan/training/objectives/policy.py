"""A captioner as a policy: the probability of each next word, and captions sampled from it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy
import torch
from transformers import GenerationConfig, PreTrainedModel, TopPLogitsWarper
from transformers.modeling_outputs import BaseModelOutput

from ...data.collator import IGNORED_LABEL
from ...models.captioning import mask_after_eos
from ...models.decoding import StepwiseDecoder


@dataclass(frozen=True)
class Policy:
    """The distribution of the next word for sampling captions, as a function of the model's logits.

    Sampling and the log-probabilities of the samples use the same function. The gradient is therefore that of the
    sampled distribution, for any temperature and nucleus (`top_p`, Holtzman et al. 2020). Captions never have
    `suppressed_tokens`: start, padding and the unknown word.
    """

    eos_token_id: int
    pad_token_id: int
    start_token_id: int
    suppressed_tokens: tuple[int, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 20

    @classmethod
    def of(cls, model: PreTrainedModel, **settings: Any) -> "Policy":
        """Returns the policy of a captioner with the special tokens of its configuration."""
        config: Any = model.config
        special = {config.pad_token_id, config.decoder_start_token_id, config.bos_token_id}
        special |= set(model.generation_config.suppress_tokens or ())
        return cls(
            eos_token_id=config.eos_token_id,
            pad_token_id=config.pad_token_id,
            start_token_id=config.decoder_start_token_id,
            suppressed_tokens=tuple(sorted(special - {None, config.eos_token_id})),
            **settings,
        )

    def logits(self, logits: torch.Tensor, chosen: torch.Tensor | None = None) -> torch.Tensor:
        """Returns float32 logits `(..., vocab_size)`; suppressed words are `-inf`, except for `chosen (...)`."""
        suppressed = tokens_on(logits.device, self.suppressed_tokens)
        logits = logits.float().index_fill(-1, suppressed, -torch.inf) / self.temperature
        if self.top_p < 1:
            with torch.no_grad():
                flat = logits.flatten(0, -2)
                left_out = TopPLogitsWarper(self.top_p)(None, flat).isneginf().view_as(logits)
                if chosen is not None:
                    left_out.scatter_(-1, chosen[..., None], False)
            logits = logits.masked_fill(left_out, -torch.inf)
        return logits

    def generation_config(self, num_beams: int = 1) -> GenerationConfig:
        settings = {name: getattr(self, name) for name in ("max_new_tokens", "eos_token_id", "pad_token_id")}
        settings |= dict.fromkeys(("bos_token_id", "decoder_start_token_id"), self.start_token_id)
        settings |= dict.fromkeys(("num_beams", "num_return_sequences"), num_beams)
        return GenerationConfig(suppress_tokens=list(self.suppressed_tokens) or None, **settings)


@lru_cache(maxsize=16)
def tokens_on(device: torch.device, tokens: tuple[int, ...]) -> torch.Tensor:
    """Returns token ids on a device, cached: a copy for every word would synchronize with the device."""
    with torch.inference_mode(False):  # gradients may need them later
        return torch.tensor(tokens, dtype=torch.long, device=device)


def draw_words(policy: Policy, logits: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Draws the next word of each caption from a number in [0, 1), by inverse transform sampling."""
    cumulative = policy.logits(logits).softmax(-1).cumsum(-1)
    total = cumulative[:, -1:]
    # below the total even after rounding, so that the drawn word has a probability above 0
    target = torch.minimum(uniforms[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    words = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    return words.clamp(max=logits.shape[-1] - 1)  # for logits that are not numbers; the loss will report these


def encode_images(model: Any, visual: dict) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns the last hidden states of a captioner's encoder, `(B, N, hidden_size)`, and the mask of its tokens."""
    tokens = model.base_model.get_visual_tokens(**visual) if "pixel_values" in visual else visual
    return model.get_encoder()(**tokens).last_hidden_state, tokens.get("attention_mask")


def image_uniforms(keys: Sequence[Sequence[int]], num_samples: int, length: int) -> torch.Tensor:
    """Returns uniform numbers `(len(keys) * num_samples, length)`; those of an image depend only on its key."""
    draws = [numpy.random.default_rng(key).random((num_samples, length), dtype=numpy.float32) for key in keys]
    return torch.from_numpy(numpy.concatenate(draws))


def sampling_generate(policy: Policy, uniforms: torch.Tensor) -> Callable:
    """Returns a `custom_generate` for `generate()` that samples captions `(B * k, T)` with numbers `(B * k, T)`."""

    def draw(
        model: Any,
        input_ids: torch.Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_inputs: Any,
    ) -> torch.Tensor:
        number = len(uniforms) // len(input_ids)
        decoder = StepwiseDecoder(model, input_ids.repeat_interleave(number, dim=0), model_inputs)
        ended = torch.zeros(len(uniforms), dtype=torch.bool, device=uniforms.device)
        for numbers in uniforms.unbind(-1):
            words = draw_words(policy, decoder.step().logits[:, -1], numbers)
            decoder.append(words.masked_fill(ended, policy.pad_token_id))
            ended |= words == policy.eos_token_id
            if ended.all():
                break
        return decoder.sequences

    return draw


def beam_search(
    model: Any,
    policy: Policy,
    states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    num_beams: int = 1,
    **arguments: Any,
) -> torch.Tensor:
    """Returns captions `(B, T)`, or all beams `(B * num_beams, T)`, without the start token, for encoder states."""
    if attention_mask is not None:
        arguments["attention_mask"] = attention_mask
    encoded = BaseModelOutput(last_hidden_state=states)  # beam search expands it in place
    ids = model.generate(encoder_outputs=encoded, generation_config=policy.generation_config(num_beams), **arguments)
    return ids[:, 1:]


def labels_of(samples: torch.Tensor, eos_token_id: int) -> torch.Tensor:
    """Returns samples `(R, T)` with -100 after the end token."""
    return samples.masked_fill(mask_after_eos(samples, eos_token_id), IGNORED_LABEL)

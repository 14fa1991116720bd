"""Ensembles of captioners with the same vocabulary: the mean of their log-probabilities at every word."""

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation import LogitsProcessor, LogitsProcessorList
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.modeling_utils import PreTrainedModel

from .captioning import WordGenerationMixin
from .modeling_base import HubPreTrainedModel, accepts_old_cache_name, refuse_unknown_keywords

TOKENS = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
INPUTS = ("visual_features", "visual_boxes", "attention_mask", "pixel_values", "pixel_mask")


class EnsembleCache(EncoderDecoderCache):
    """The caches of all members; beam search reorders them together."""

    def __init__(self, members: list[EncoderDecoderCache]):
        super().__init__(DynamicCache(), DynamicCache())
        self.members = members

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.members[0].get_seq_length(layer_idx)

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        for member in self.members:
            member.reorder_cache(beam_idx)


class MeanLogProbabilities(LogitsProcessor):
    """Undoes the normalization at the start of each step of beam search, so that the mean itself scores beams."""

    log_sums: torch.Tensor

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores + self.log_sums


class EnsembleForConditionalGeneration(WordGenerationMixin, HubPreTrainedModel):
    """An ensemble of captioners: `generate()` searches with the mean of their log-probabilities.

    The members may have different architectures. Raises a ValueError unless they have the same vocabulary and visual
    inputs. The first member defines the defaults of `generate()`. An ensemble cannot be saved or trained.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan import EnsembleForConditionalGeneration, NGSANConfig, NGSANForConditionalGeneration

    >>> sizes = {"vocab_size": 100, "visual_feature_size": 16, "num_attention_heads": 4, "geometric_bias": []}
    >>> members = [NGSANForConditionalGeneration(NGSANConfig(hidden_size=size, **sizes)) for size in (16, 32)]
    >>> ensemble = EnsembleForConditionalGeneration(members).eval()
    >>> ensemble.generate(visual_features=torch.rand(1, 5, 16), num_beams=3, max_new_tokens=7).shape[0]
    1

    ```
    """

    main_input_name = "visual_features"
    input_modalities = ["image", "text"]
    _is_stateful = False

    def __init__(self, members: Sequence[PreTrainedModel]):
        first: Any = members[0]
        for member, name in itertools.product(members, (*TOKENS, "visual_feature_size")):
            expected, actual = getattr(first.config, name, None), getattr(member.config, name, None)
            if expected != actual:
                raise ValueError(f"{name} is {expected} and {actual}; members need the same vocabulary and features.")
        super().__init__(copy.deepcopy(first.config))
        self.members = nn.ModuleList(members)
        self.generation_config = copy.deepcopy(first.generation_config)
        self.main_input_name = first.main_input_name
        self.train(first.training)

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("An ensemble cannot be saved; save its members, and create it from them again.")

    def encode(self, **inputs: torch.Tensor) -> BaseModelOutput:
        """Returns the states of the first member, with the states and masks of the others as further entries."""
        encoded = BaseModelOutput()
        for index, member in enumerate(self.members):
            captioner: Any = member
            visual: Any = captioner.model.get_visual_tokens(**inputs) if "pixel_values" in inputs else inputs
            states = captioner.model.encoder(**visual).last_hidden_state
            encoded["last_hidden_state" if index == 0 else f"last_hidden_state_{index}"] = states
            if visual.get("attention_mask") is not None:
                encoded[f"attention_mask_{index}"] = visual["attention_mask"]
        return encoded

    @torch.no_grad()
    def generate(self, inputs: torch.Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Captions images like transformers' `generate()`; visualness and static caches are not supported."""
        for name in ("return_visualness", "cache_implementation"):
            if kwargs.pop(name, None):
                raise ValueError(f"{name} is not supported by an ensemble; leave it out.")
        if inputs is not None:
            kwargs["pixel_values" if inputs.ndim == 4 else "visual_features"], inputs = inputs, None
        visual = {name: kwargs.pop(name) for name in INPUTS if kwargs.get(name) is not None}
        if kwargs.get("encoder_outputs") is None:
            kwargs["encoder_outputs"] = self.encode(**visual)
        settings = kwargs.get("generation_config") or self.generation_config
        if (kwargs.get("num_beams", settings.num_beams) or 1) > 1:
            kwargs["mean"] = mean = MeanLogProbabilities()
            kwargs["logits_processor"] = LogitsProcessorList([mean, *(kwargs.get("logits_processor") or [])])
            first: Any = self.members[0]
            kwargs |= first.beam_search_arguments(kwargs)
        return super().generate(inputs, *args, **kwargs)

    @accepts_old_cache_name
    def forward(
        self,
        visual_features: torch.Tensor | None = None,
        visual_boxes: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        pixel_values: torch.Tensor | None = None,
        pixel_mask: torch.Tensor | None = None,
        mean: MeanLogProbabilities | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Takes the arguments of each captioner, and the logits processor that undoes the normalization.

        `logits` `(batch_size * C, length, vocab_size)` are the mean of the members' log-probabilities in float32, which
        is not normalized. A cache of another class than [`EnsembleCache`] counts as empty.
        """
        refuse_unknown_keywords(self, kwargs)
        if encoder_outputs is None:
            values = (visual_features, visual_boxes, attention_mask, pixel_values, pixel_mask)
            inputs = {name: value for name, value in zip(INPUTS, values, strict=True) if value is not None}
            encoder_outputs = self.encode(**inputs)
        caches = cache.members if isinstance(cache, EnsembleCache) else [None] * len(self.members)
        total: Any = 0
        new_caches = []
        for index, (member, member_cache) in enumerate(zip(self.members, caches, strict=True)):
            captioner: Any = member
            states = encoder_outputs["last_hidden_state" if index == 0 else f"last_hidden_state_{index}"]
            outputs = captioner(
                encoder_outputs=BaseModelOutput(last_hidden_state=states),
                attention_mask=encoder_outputs.get(f"attention_mask_{index}"),
                decoder_input_ids=decoder_input_ids,
                decoder_attention_mask=decoder_attention_mask,
                decoder_position_ids=decoder_position_ids,
                cache=member_cache,
                use_cache=use_cache,
            )
            total = total + outputs.logits.float().log_softmax(-1)
            new_caches.append(outputs.cache)
        logits = total / len(self.members)
        if mean is not None:
            mean.log_sums = logits[:, -1].logsumexp(-1, keepdim=True)
        return Seq2SeqLMOutput(logits=logits, cache=EnsembleCache(new_caches) if use_cache else None)


__all__ = ["EnsembleForConditionalGeneration"]

"""The base of models that write text: settings of `generate()`, positions of words, shifted labels and the loss."""

from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils import logging

from .modeling_base import UnknownArgumentError
from .transformer import (
    WordDecoder,
    caption_cache,
    labels_beside_inputs,
    labels_from_first_word,
    loss_of_words,
    shift_behind_start,
    token_positions,
)

logger = logging.get_logger(__name__)


def decoded_outputs(
    decoder: WordDecoder, encoder: Any, encoder_attention_mask: torch.Tensor | None, **inputs: Any
) -> Seq2SeqModelOutput:
    """Runs the decoder over the outputs of an encoder, which may be a tuple; returns the outputs of both as one."""
    encoder = encoder if isinstance(encoder, BaseModelOutput) else BaseModelOutput(*encoder)
    decoder_outputs = decoder(
        encoder_hidden_states=encoder.last_hidden_state, encoder_attention_mask=encoder_attention_mask, **inputs
    )
    return Seq2SeqModelOutput(
        last_hidden_state=decoder_outputs.last_hidden_state,
        cache=decoder_outputs.cache,
        decoder_hidden_states=decoder_outputs.hidden_states,
        decoder_attentions=decoder_outputs.attentions,
        cross_attentions=decoder_outputs.cross_attentions,
        encoder_last_hidden_state=encoder.last_hidden_state,
        encoder_hidden_states=encoder.hidden_states,
        encoder_attentions=encoder.attentions,
    )


class WordGenerationMixin(GenerationMixin):
    """Connects an encoder-decoder around [`transformer.WordDecoder`] with `generate()` and training.

    Attributes:
        longest_output (`int`): default maximum of tokens of a generated text, the end token included.
    """

    longest_output = 20

    def adjust_generation_fn(self, *args: Any, **kwargs: Any) -> None:
        """Reads `generation_config.json` for `from_pretrained`; without the file, texts have their usual maximum."""
        super().adjust_generation_fn(*args, **kwargs)  # type: ignore[misc]
        settings: Any = self.generation_config  # type: ignore[attr-defined]
        if settings.max_new_tokens is None and settings.max_length is None:
            settings.max_new_tokens = self.longest_output

    @torch.no_grad()
    def generate(self, inputs: torch.Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Generates text; the arguments are those of transformers' `generate()`, and labels, which are ignored."""
        kwargs.pop("labels", None)  # a Trainer passes a whole batch
        if kwargs.get("max_length") is not None:
            kwargs.setdefault("max_new_tokens", None)  # the model's would have priority
        return super().generate(inputs, *args, **kwargs)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shifts labels `(batch_size, length)` behind the start token, for teacher forcing; -100 becomes padding.

        Labels that begin with the start token or with -100 lose what is in front of their words, in place: a collator
        that asks for the inputs has these labels in its batch, and transformers' label smoothing compares them with the
        outputs, token by token.
        """
        config = self.config  # type: ignore[attr-defined]
        words = labels_from_first_word(labels, config.decoder_start_token_id)
        if not torch.equal(words, labels):
            labels.copy_(words)
        return shift_behind_start(words, config.decoder_start_token_id, config.pad_token_id)

    def teacher_forced(
        self,
        labels: torch.Tensor | None,
        decoder_input_ids: torch.Tensor | None,
        decoder_inputs_embeds: torch.Tensor | None,
        decoder_attention_mask: torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Returns the labels of the outputs, and the decoder's inputs and mask, made of the labels if need be.

        Args:
            labels (`torch.LongTensor` of shape `(batch_size, length)`, *optional*): words and the end token, with or
                without a start token in front; -100 at padding.
            decoder_input_ids, decoder_inputs_embeds, decoder_attention_mask: as the model was given them.
        """
        config = self.config  # type: ignore[attr-defined]
        start = config.decoder_start_token_id
        if labels is None:
            return None, decoder_input_ids, decoder_attention_mask
        if decoder_input_ids is not None or decoder_inputs_embeds is not None:
            return labels_beside_inputs(labels, decoder_input_ids, start), decoder_input_ids, decoder_attention_mask
        labels = labels_from_first_word(labels, start)
        # Padding is behind the words, where causal attention does not reach: no mask is needed.
        return labels, shift_behind_start(labels, start, config.pad_token_id), None

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.Tensor,
        next_sequence_length: int | None = None,
        cache: Cache | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> dict:
        """Adds mask and positions of all words so far, which show a step whether earlier words are missing."""
        if decoder_attention_mask is None:
            length = input_ids.shape[1]
            if next_sequence_length is None and cache is not None and not cache.is_compileable:
                length += cache.get_seq_length()  # all words given are new ones
            decoder_attention_mask = input_ids.new_ones(input_ids.shape[0], length)
        if decoder_attention_mask.ndim == 2:
            # A static cache makes the mask 4-dimensional, in which the number of words is no longer seen.
            kwargs.setdefault("decoder_position_ids", token_positions(decoder_attention_mask))
        return super().prepare_inputs_for_generation(
            input_ids, next_sequence_length, cache, decoder_attention_mask=decoder_attention_mask, **kwargs
        )

    def _expand_inputs_for_generation(self, **given: Any) -> tuple[torch.Tensor, dict[str, Any]]:  # type: ignore[override]
        """Repeats words for beams or samples, and not the encoder's states: the captions of an image share them."""
        shared = {name: given.pop(name) for name in ("encoder_outputs", "attention_mask") if name in given}
        input_ids, model_kwargs = super()._expand_inputs_for_generation(  # type: ignore[misc]
            **given | {"is_encoder_decoder": False}
        )
        return input_ids, model_kwargs | shared

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config: Any, model_kwargs: dict, *args: Any, **kwargs: Any
    ) -> None:
        """Makes a cache in which captions share the keys and values of their image."""
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)  # type: ignore[misc]
        if model_kwargs.get("cache") is not None:
            model_kwargs["cache"] = caption_cache(model_kwargs["cache"])

    def _validate_model_kwargs(self, model_kwargs: dict[str, Any]) -> None:
        """Gives unknown arguments of `generate()` the same error as in any other call."""
        try:
            super()._validate_model_kwargs(model_kwargs)  # type: ignore[misc]
        except ValueError as error:
            raise UnknownArgumentError(str(error)) from None

    def word_outputs(
        self, outputs: Seq2SeqModelOutput, labels: torch.Tensor | None, num_items_in_batch: Any
    ) -> Seq2SeqLMOutput:
        """Returns the outputs of the model without its word classifier, with logits and, given labels, the loss."""
        logits = self.lm_head(outputs.last_hidden_state)  # type: ignore[attr-defined]
        rest = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        return Seq2SeqLMOutput(loss=loss_of_words(self, logits, labels, num_items_in_batch), logits=logits, **rest)


__all__ = ["WordGenerationMixin", "decoded_outputs"]

"""Base classes of models that generate text: word decoder, cache, labels, loss and `generate()`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.configuration_utils import PreTrainedConfig
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, torch_compilable_check
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention import CROSS_ATTENTIONS, SELF_ATTENTIONS, DecoderLayer, with_attention
from .modeling_base import (
    HubPreTrainedModel,
    accepts_old_cache_name,
    check_exactly_one,
    make_vision_encoder,
    refuse_unknown_keywords,
    vision_of,
)
from .positions import positions_of_tokens, sinusoids, token_positions


def refuse_missing_past(
    length: int, cache: Cache | None, attention_mask: torch.Tensor | None, position_ids: torch.Tensor | None
) -> None:
    """Raises a ValueError if mask or positions count earlier words that are not in the cache."""
    if cache is not None and cache.is_compileable:
        return  # its size is fixed from the start, so a mask of any size is valid
    past = 0 if cache is None else cache.get_seq_length()
    if isinstance(attention_mask, torch.Tensor) and attention_mask.shape[-1] != past + length:
        raise ValueError(f"The mask has {attention_mask.shape[-1]} words, not {past} cached and {length} new ones.")
    if position_ids is not None and past == 0:
        torch_compilable_check(
            position_ids[..., :1] == 0, "Positions do not start at 0, but the states of earlier words are missing."
        )


class CaptionCache(EncoderDecoderCache):
    """Cache of the keys and values of words and images; the captions of an image may share those of the image."""

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Reorders the states of words, and of images only if captions do not share them: beams keep their image."""
        layers: Any = self.cross_attention_cache.layers
        images = [layer for layer in layers if layer.is_initialized and len(layer.keys) == len(beam_idx)]
        for layer in (*self.self_attention_cache.layers, *images):
            if layer.is_compileable:  # in place, because CUDA graphs write only to tensors that keep their addresses
                for states in (layer.keys, layer.values):
                    states.copy_(states[beam_idx])
            else:
                layer.reorder_cache(beam_idx)


def caption_cache(cache: Cache) -> CaptionCache:
    """Converts a cache to one whose captions may share images; both caches hold the same states."""
    if not isinstance(cache, EncoderDecoderCache):
        return CaptionCache(cache, DynamicCache())
    shared = CaptionCache(cache.self_attention_cache, cache.cross_attention_cache)
    shared.is_updated = cache.is_updated
    return shared


class DecoderInputs(NamedTuple):
    """Arguments of [`~WordDecoder.forward`] from which a decoder computes further arguments of its layers."""

    input_ids: torch.Tensor | None
    attention_mask: torch.Tensor | None
    position_ids: torch.Tensor
    encoder_hidden_states: torch.Tensor
    encoder_attention_mask: torch.Tensor | None
    cache: CaptionCache | None


class WordDecoder(HubPreTrainedModel):
    """Transformer decoder over words, with sinusoidal positions (Vaswani et al. 2017) and vanilla attention.

    Tokens `(B * C, T)` hold C captions of each image next to each other; encoder states are `(B, N, D)`. The keys of
    each image are computed once.
    """

    main_input_name = "input_ids"
    _no_split_modules = ["DecoderLayer"]
    _can_record_outputs = {
        "hidden_states": DecoderLayer,
        "attentions": SELF_ATTENTIONS,
        "cross_attentions": CROSS_ATTENTIONS,
    }

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(self.make_layer(config, index) for index in range(config.num_hidden_layers))
        self.gradient_checkpointing = False
        self.post_init()

    def make_layer(self, config: PreTrainedConfig, layer_idx: int) -> nn.Module:
        return DecoderLayer(config, layer_idx)

    def embed(
        self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Adds positions to the embeddings of words, both `(batch_size, length, hidden_size)`."""
        hidden_size = self.config.hidden_size
        positions = sinusoids(position_ids, hidden_size).to(inputs_embeds.dtype)
        return self.dropout(inputs_embeds * hidden_size**0.5 + positions)

    def inputs_of_layers(self, inputs: DecoderInputs) -> dict[str, Any]:
        """Returns further arguments of every layer."""
        return {}

    @accepts_old_cache_name
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        encoder_hidden_states: Any = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Takes the arguments of [`CaptioningForConditionalGeneration.forward`], without `decoder_` in their names.

        A `Cache` of another class becomes the self-attention part of a new cache. `kwargs` are passed to the layers:
        `attn_implementation="eager"` returns attention weights and affects only this call.
        """
        refuse_unknown_keywords(self, kwargs)
        check_exactly_one(input_ids=input_ids, inputs_embeds=inputs_embeds)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        batch_size, length, hidden_size = inputs_embeds.shape
        num_images = encoder_hidden_states.shape[0]
        if batch_size % num_images:
            raise ValueError(f"{batch_size} captions cannot be split evenly among {num_images} images.")
        refuse_missing_past(length, cache, attention_mask, position_ids)

        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        if cache is not None and not isinstance(cache, EncoderDecoderCache):
            cache = caption_cache(cache)
        if position_ids is None:
            position_ids = positions_of_tokens(inputs_embeds, attention_mask, cache)
        config = with_attention(self.config, kwargs.get("attn_implementation"))
        causal_mask = create_causal_mask(
            config=config, inputs_embeds=inputs_embeds, attention_mask=attention_mask, cache=cache
        )
        per_image = inputs_embeds.reshape(num_images, -1, hidden_size)
        encoder_mask = self.padding_mask(per_image, encoder_attention_mask, encoder_hidden_states, config)
        encoded = (encoder_hidden_states, encoder_attention_mask)
        kwargs |= self.inputs_of_layers(DecoderInputs(input_ids, attention_mask, position_ids, *encoded, cache))
        hidden_states = self.embed(inputs_embeds, position_ids, attention_mask)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                encoder_hidden_states,
                attention_mask=causal_mask,
                encoder_attention_mask=encoder_mask,
                cache=cache,
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(hidden_states, cache=cache if use_cache else None)


def decoded_outputs(
    decoder: WordDecoder, encoder: Any, encoder_attention_mask: torch.Tensor | None, **inputs: Any
) -> Seq2SeqModelOutput:
    """Runs the decoder on the outputs of an encoder (or a tuple of them); returns the outputs of both."""
    encoder = encoder if isinstance(encoder, BaseModelOutput) else BaseModelOutput(*encoder)
    states = encoder.last_hidden_state
    outputs = decoder(encoder_hidden_states=states, encoder_attention_mask=encoder_attention_mask, **inputs)
    return Seq2SeqModelOutput(
        last_hidden_state=outputs.last_hidden_state,
        cache=outputs.cache,
        decoder_hidden_states=outputs.hidden_states,
        decoder_attentions=outputs.attentions,
        cross_attentions=outputs.cross_attentions,
        encoder_last_hidden_state=encoder.last_hidden_state,
        encoder_hidden_states=encoder.hidden_states,
        encoder_attentions=encoder.attentions,
    )


def leading_start_tokens(labels: torch.Tensor, start: int) -> torch.Tensor:
    """Returns which labels `(batch_size, length)` precede the words: start tokens and -100."""
    return (torch.eq(labels, -100) | torch.eq(labels, start)).long().cumprod(1).bool()


def strip_start_tokens(labels: torch.Tensor, start: int) -> torch.Tensor:
    """Returns labels `(batch_size, length)` without leading start tokens and -100, moved to the left."""
    places = torch.arange(labels.shape[1], device=labels.device) + leading_start_tokens(labels, start).sum(
        1, keepdim=True
    )
    last = labels.shape[1] - 1
    return labels.gather(1, places.clamp(max=last)).masked_fill(places > last, -100)


def align_labels_with_inputs(labels: torch.Tensor, input_ids: torch.Tensor | None, start: int) -> torch.Tensor:
    """Returns labels `(batch_size, length)` such that each is the token after its input.

    Labels with a start token are the inputs themselves, unless the inputs were shifted and have two start tokens.
    """
    are_inputs = (leading_start_tokens(labels, start) & torch.eq(labels, start)).any(1, keepdim=True)
    if input_ids is not None:
        are_inputs &= torch.eq(input_ids, start).sum(1, keepdim=True) < 2
    labels = torch.where(are_inputs, nn.functional.pad(labels[:, 1:], (0, 1), value=-100), labels)
    return labels.masked_fill(leading_start_tokens(labels, start), -100)


def shift_tokens_right(labels: torch.Tensor, start: int, padding: int) -> torch.Tensor:
    """Shifts labels `(batch_size, length)` right and puts a start token before them; -100 becomes padding."""
    shifted = nn.functional.pad(labels[:, :-1], (1, 0), value=start)
    return shifted.masked_fill(shifted == -100, padding)


def mask_after_eos(tokens: torch.Tensor, ends: int | list[int] | None) -> torch.Tensor:
    """Returns which of the new tokens `(rows, length)` come after an end token."""
    is_end = torch.isin(tokens, torch.tensor([] if ends is None else ends, device=tokens.device).reshape(-1))
    return (is_end.cumsum(-1) - is_end.long()) > 0


def loss_of_words(model: Any, logits: torch.Tensor, labels: torch.Tensor, number: Any) -> torch.Tensor:
    """Returns the cross-entropy of labels `(batch_size, length)` per word, or its sum divided by `number`."""
    labels = labels.contiguous()  # as the inputs of the model are
    return model.loss_function(logits, None, model.config.vocab_size, shift_labels=labels, num_items_in_batch=number)


class WordGenerationMixin(GenerationMixin):
    """Adds `generate()` and training to an encoder-decoder with a [`WordDecoder`]."""

    config: Any
    model: Any
    lm_head: nn.Module
    training: bool
    longest_output = 20  # default number of new tokens, including the end token

    def adjust_generation_fn(self, *args: Any, **kwargs: Any) -> None:
        """Reads `generation_config.json`; without a length there, the default length applies."""
        super().adjust_generation_fn(*args, **kwargs)  # type: ignore[misc]
        if self.generation_config.max_new_tokens is None and self.generation_config.max_length is None:
            self.generation_config.max_new_tokens = self.longest_output

    def beam_search_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns arguments that replace those of `generate()` in beam search; a subclass may return some."""
        return {}

    @torch.no_grad()
    def generate(self, inputs: torch.Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Generates text; takes the arguments of transformers' `generate()` and ignores `labels`."""
        kwargs.pop("labels", None)  # a Trainer passes a whole batch
        if kwargs.get("max_length") is not None:
            kwargs.setdefault("max_new_tokens", None)  # otherwise the model's default would take precedence
        return super().generate(inputs, *args, **kwargs)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shifts labels `(batch_size, length)` right; removes in place what precedes the words."""
        start = self.config.decoder_start_token_id
        labels.copy_(strip_start_tokens(labels, start))
        return shift_tokens_right(labels, start, self.config.pad_token_id)

    def predict_words(
        self, labels: torch.Tensor | None, num_items_in_batch: Any = None, **inputs: Any
    ) -> Seq2SeqLMOutput:
        """Runs `self.model` and the word classifier; without decoder inputs, makes them from labels."""
        start = self.config.decoder_start_token_id
        if labels is not None and inputs["decoder_input_ids"] is None and inputs["decoder_inputs_embeds"] is None:
            labels = strip_start_tokens(labels, start)
            # Padding follows the words, where causal attention does not reach, so no mask is needed.
            inputs["decoder_attention_mask"] = None
            inputs["decoder_input_ids"] = shift_tokens_right(labels, start, self.config.pad_token_id)
        elif labels is not None:
            labels = align_labels_with_inputs(labels, inputs["decoder_input_ids"], start)
        if labels is not None and self.training and inputs["use_cache"] is None:
            inputs["use_cache"] = False  # it would be unused, and copying into it takes operators
        outputs = self.model(**inputs)
        logits = self.lm_head(outputs.last_hidden_state)
        rest = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        loss = None if labels is None else loss_of_words(self, logits, labels, num_items_in_batch)
        return Seq2SeqLMOutput(loss=loss, logits=logits, **rest)

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.Tensor,
        next_sequence_length: int | None = None,
        cache: Cache | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> dict:
        """Adds the mask and positions of all words so far; `forward` uses them to detect missing earlier words."""
        if decoder_attention_mask is None:
            length = input_ids.shape[1]
            if next_sequence_length is None and cache is not None and not cache.is_compileable:
                length += cache.get_seq_length()  # all words in `input_ids` are new
            decoder_attention_mask = input_ids.new_ones(len(input_ids), length)
        if decoder_attention_mask.ndim == 2:
            # A static cache makes the mask 4-dimensional, which hides the number of words.
            kwargs.setdefault("decoder_position_ids", token_positions(decoder_attention_mask))
        return super().prepare_inputs_for_generation(
            input_ids, next_sequence_length, cache, decoder_attention_mask=decoder_attention_mask, **kwargs
        )

    def _expand_inputs_for_generation(self, **inputs: Any) -> tuple[Any, dict[str, Any]]:  # type: ignore[override]
        """Repeats words for beams or samples, but not encoder states: the captions of an image share them."""
        shared = {name: inputs.pop(name) for name in ("encoder_outputs", "attention_mask") if name in inputs}
        inputs["is_encoder_decoder"] = False
        input_ids, model_kwargs = super()._expand_inputs_for_generation(**inputs)  # type: ignore[misc]
        return input_ids, model_kwargs | shared

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config: Any, model_kwargs: dict, *args: Any, **kwargs: Any
    ) -> None:
        """Makes a cache in which captions share the keys and values of their image."""
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)  # type: ignore[misc]
        if model_kwargs.get("cache") is not None:
            model_kwargs["cache"] = caption_cache(model_kwargs["cache"])


class CaptioningModel(HubPreTrainedModel):
    """Encoder over visual tokens and decoder over words without an output head; a subclass creates both."""

    encoder: PreTrainedModel
    decoder: WordDecoder
    vision: Any

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.vision = make_vision_encoder(config.vision_config)
        if self.vision is not None:
            self.main_input_name = "pixel_values"

    def get_visual_tokens(
        self,
        pixel_values: torch.Tensor,
        pixel_mask: torch.Tensor | None = None,
        visual_features: torch.Tensor | None = None,
        visual_boxes: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
    ) -> Any:
        """Encodes images into `visual_features`, `visual_boxes` and `attention_mask`, which replace the pixels."""
        check_exactly_one(pixel_values=pixel_values, visual_features=visual_features)
        return vision_of(self)(pixel_values, pixel_mask, visual_boxes=visual_boxes, attention_mask=attention_mask)

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embed_tokens

    def set_input_embeddings(self, value: Any) -> None:
        self.decoder.embed_tokens = value

    @accepts_old_cache_name
    @can_return_tuple
    def forward(
        self,
        visual_features: torch.Tensor | None = None,
        visual_boxes: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        pixel_values: torch.Tensor | None = None,
        pixel_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """Takes the arguments of [`CaptioningForConditionalGeneration.forward`], without labels."""
        if pixel_values is not None:
            tokens = self.get_visual_tokens(pixel_values, pixel_mask, visual_features, visual_boxes, attention_mask)
            visual_features, visual_boxes = tokens.visual_features, tokens.visual_boxes
            attention_mask = tokens.attention_mask
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                visual_features, visual_boxes=visual_boxes, attention_mask=attention_mask, **kwargs
            )
        return decoded_outputs(
            self.decoder,
            encoder_outputs,
            attention_mask,
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            position_ids=decoder_position_ids,
            inputs_embeds=decoder_inputs_embeds,
            cache=cache,
            use_cache=use_cache,
            **kwargs,
        )


class CaptioningForConditionalGeneration(WordGenerationMixin, HubPreTrainedModel):
    """A captioner with its word classifier. A subclass sets `self.model` and `self.lm_head`."""

    model: CaptioningModel
    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.generation_config.max_new_tokens = self.longest_output
        if config.vision_config is not None:
            self.main_input_name = "pixel_values"

    @torch.no_grad()
    def generate(self, inputs: torch.Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Captions images; `inputs` are visual features, or pixels if they have four dimensions."""
        inputs = self.replace_pixels(inputs, kwargs)
        return super().generate(inputs, *args, **kwargs)

    def replace_pixels(self, inputs: torch.Tensor | None, kwargs: dict) -> torch.Tensor | None:
        """Replaces pixels by visual tokens before inputs are repeated for beams; returns `inputs`."""
        if inputs is not None and inputs.ndim == 4:
            kwargs["pixel_values"], inputs = inputs, None
        if kwargs.get("pixel_values") is not None:
            names = ("pixel_values", "pixel_mask", "visual_features", "visual_boxes", "attention_mask")
            kwargs |= self.model.get_visual_tokens(**{name: kwargs.pop(name, None) for name in names})
        return inputs

    @accepts_old_cache_name
    @can_return_tuple
    def forward(
        self,
        visual_features: torch.Tensor | None = None,
        visual_boxes: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        labels: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        pixel_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        r"""Computes the logits of captions and, with labels, the loss.

        Args:
            visual_features (`torch.FloatTensor` of shape `(batch_size, num_regions, visual_feature_size)`):
                features of regions, grid cells or video frames.
            visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`, *optional*): `x1, y1, x2, y2`
                divided by the image's width and height. Needed by models with a geometric bias.
            attention_mask (`torch.Tensor` of shape `(batch_size, num_regions)`, *optional*): 1 = real, 0 = padding.
            decoder_input_ids (`torch.LongTensor` of shape `(batch_size * C, length)`, *optional*): the words so far, C
                captions per image, next to each other; by default, they are computed from `labels`.
            decoder_attention_mask, decoder_position_ids, decoder_inputs_embeds, cache, use_cache: as for every decoder.
            encoder_outputs (`BaseModelOutput`, *optional*): result of the encoder, to skip it.
            labels (`torch.LongTensor` of shape `(batch_size * C, length)`, *optional*): captions with their end token;
                -100 at padding. Together with `decoder_input_ids`, each label is the token after its input.
            pixel_values (`torch.FloatTensor` of shape `(batch_size, 3, height, width)`, *optional*): images instead of
                visual features, for a model with a vision encoder.
            pixel_mask (`torch.LongTensor` of shape `(batch_size, height, width)`, *optional*): 1 = pixel, 0 = padding.

        Returns:
            `Seq2SeqLMOutput` with `logits` `(batch_size * C, length, vocab_size)` and, with labels, `loss`: the
            cross-entropy per word (the sum divided by `num_items_in_batch` if that is passed).
        """
        return self.predict_words(
            labels,
            visual_features=visual_features,
            visual_boxes=visual_boxes,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            decoder_position_ids=decoder_position_ids,
            decoder_inputs_embeds=decoder_inputs_embeds,
            encoder_outputs=encoder_outputs,
            cache=cache,
            use_cache=use_cache,
            pixel_values=pixel_values,
            pixel_mask=pixel_mask,
            **kwargs,
        )

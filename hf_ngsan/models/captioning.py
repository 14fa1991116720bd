"""What every captioner shares: feed-forward block, caption decoder, output head and the glue to `generate()`."""

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import ChannelAffine, MultiHeadAttention
from .attention_maps import WordAttentionMixin
from .geometry import sinusoids
from .modeling_vision import PreTrainedModelWithVision, VisionModel, VisionOutput


class FeedForward(nn.Module):
    """Linear, ReLU, Linear, applied to each token (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dropout = nn.Dropout(config.residual_dropout)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.down(self.dropout(torch.relu(self.up(hidden_states))))


class CaptionEncoderLayer(GradientCheckpointingLayer):
    """Self-attention, with a geometric bias if there is one, and feed-forward, each LayerNorm(x + sublayer(x)).

    Args:
        config (`PreTrainedConfig`): a captioner's.
        geometric_bias (`nn.Module`, *optional*): makes the additive bias of hidden states and relative geometry.
        norms: `query_norm`, `key_norm` and `norm_affine` of [`attention.MultiHeadAttention`].
    """

    def __init__(self, config, geometric_bias: nn.Module | None = None, **norms):
        super().__init__()
        self.geometric_bias = geometric_bias
        self.self_attn = MultiHeadAttention(config, **norms)
        self.self_attn_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.residual_dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        geometry: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        position_bias = None if self.geometric_bias is None else self.geometric_bias(hidden_states, geometry)
        attended, _ = self.self_attn(
            hidden_states, attention_mask=attention_mask, position_bias=position_bias, **kwargs
        )
        hidden_states = self.self_attn_norm(hidden_states + self.dropout(attended))
        return self.feed_forward_norm(hidden_states + self.dropout(self.feed_forward(hidden_states)))


class CaptionDecoderLayer(GradientCheckpointingLayer):
    """Causal self-attention, cross-attention and feed-forward, each LayerNorm(x + sublayer(x))."""

    def __init__(self, config, layer_idx: int):
        super().__init__()
        self.self_attn = MultiHeadAttention(config, layer_idx, is_causal=True)
        self.self_attn_norm = nn.LayerNorm(config.hidden_size)
        self.encoder_attn = MultiHeadAttention(config, layer_idx)
        self.encoder_attn_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.residual_dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None,
        attention_mask: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        key_counts: torch.Tensor | None = None,
        encoder_key_counts: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        attended, _ = self.self_attn(
            hidden_states,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            key_counts=key_counts,
            **kwargs,
        )
        hidden_states = self.self_attn_norm(hidden_states + self.dropout(attended))
        attended, _ = self.encoder_attn(
            hidden_states,
            encoder_hidden_states,
            attention_mask=encoder_attention_mask,
            past_key_values=past_key_values,
            key_counts=encoder_key_counts,
            **kwargs,
        )
        hidden_states = self.encoder_attn_norm(hidden_states + self.dropout(attended))
        return self.feed_forward_norm(hidden_states + self.dropout(self.feed_forward(hidden_states)))


class CaptioningPreTrainedModel(PreTrainedModelWithVision):
    """Weight initialization, loading and the capabilities that every captioner declares."""

    base_model_prefix = "model"
    main_input_name = "visual_features"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _no_split_modules = ["CaptionDecoderLayer"]
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, ChannelAffine):
            init.ones_(module.scale)
            init.zeros_(module.shift)


def token_positions(attention_mask: torch.Tensor) -> torch.LongTensor:
    """Positions `(batch_size, length)` that count the tokens of a mask `(batch_size, length)`; 0 before the first."""
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def token_counts(states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.LongTensor:
    """Real tokens `(batch_size, 1)` of states `(batch_size, num_tokens, hidden_size)`."""
    if attention_mask is None:
        return torch.full((states.shape[0], 1), states.shape[1], device=states.device)
    return attention_mask.long().sum(-1, keepdim=True)


def check_visual_features(visual_features: torch.Tensor | None, attention_mask: torch.Tensor | None, width: int):
    """Raise a ValueError unless features are `(batch_size, num_regions, width)` and their mask, if any, fits."""
    if visual_features is None:
        raise ValueError("The model needs visual_features (or encoder_outputs); neither was given.")
    if visual_features.ndim != 3 or visual_features.shape[-1] != width:
        raise ValueError(
            f"visual_features has shape {tuple(visual_features.shape)}; the configuration wants "
            f"(batch_size, num_regions, {width}) (visual_feature_size={width})."
        )
    if attention_mask is not None and attention_mask.shape != visual_features.shape[:2]:
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; with these visual_features it must be "
            f"{tuple(visual_features.shape[:2])}."
        )


class CaptionDecoder(CaptioningPreTrainedModel):
    """Transformer decoder over words, with sinusoidal positions (Vaswani et al. 2017) and vanilla attention.

    With `config.attention_temperature = "key_length"` scores are divided by sqrt(key_length + head_dim), eq. 2 of
    Springenberg et al. 2018, where key_length counts what a query may attend to: the words up to and including its own,
    the real visual tokens. A cache, beams and padding thus change nothing.

    Serves C captions of an image at once: with `(B * C, T)` tokens (the captions of an image next to each other) and
    `(B, N, D)` encoder states, each image is encoded, and its keys computed, once.
    """

    main_input_name = "input_ids"
    _can_record_outputs = {
        "hidden_states": CaptionDecoderLayer,
        "attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(MultiHeadAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(CaptionDecoderLayer(config, index) for index in range(config.num_hidden_layers))
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        encoder_hidden_states: torch.FloatTensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        r"""
        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, length)`): the words so far.
            attention_mask (`torch.Tensor` of shape `(batch_size, length)`, *optional*): 1 = word, 0 = padding, on
                either side; positions count real words only.
            position_ids (`torch.LongTensor` of shape `(batch_size, length)`, *optional*).
            encoder_hidden_states (`torch.FloatTensor` of shape `(num_images, num_regions, hidden_size)`).
            encoder_attention_mask (`torch.Tensor` of shape `(num_images, num_regions)`, *optional*).
            past_key_values (`EncoderDecoderCache`, *optional*): another `Cache` serves as its self-attention part.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, length, hidden_size)`, *optional*): in place of
                `input_ids`, before scaling and positions.
            use_cache (`bool`, *optional*).

        Raises:
            ValueError: neither or both of `input_ids` and `inputs_embeds`, no encoder states, or a number of captions
                that is no multiple of the number of images.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give the decoder exactly one of input_ids (decoder_input_ids) and inputs_embeds.")
        if encoder_hidden_states is None:
            raise ValueError("The caption decoder needs encoder_hidden_states, the encoded visual tokens.")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        batch_size, length, hidden_size = inputs_embeds.shape
        num_images = encoder_hidden_states.shape[0]
        if batch_size % num_images:
            raise ValueError(f"{batch_size} captions cannot be shared out evenly among {num_images} images.")

        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if past_key_values is not None and not isinstance(past_key_values, EncoderDecoderCache):
            past_key_values = EncoderDecoderCache(past_key_values, DynamicCache(config=self.config))
        if position_ids is None:
            past_length = past_key_values.get_seq_length() if past_key_values is not None else 0
            if attention_mask is not None and attention_mask.ndim == 2:
                position_ids = token_positions(attention_mask)[:, -length:]
            else:
                position_ids = torch.arange(length, device=inputs_embeds.device)[None] + past_length

        key_counts, encoder_key_counts = None, None
        if self.config.attention_temperature == "key_length":
            # Before a static cache is used, its mask is made 4-dimensional: the words are counted by their positions.
            key_counts = position_ids + 1
            encoder_key_counts = token_counts(encoder_hidden_states, encoder_attention_mask)

        causal_mask = create_causal_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
        )
        encoder_attention_mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=inputs_embeds.reshape(num_images, -1, hidden_size),
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )

        positions = sinusoids(position_ids, hidden_size).to(inputs_embeds.dtype)
        hidden_states = self.dropout(inputs_embeds * hidden_size**0.5 + positions)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                encoder_hidden_states,
                attention_mask=causal_mask,
                encoder_attention_mask=encoder_attention_mask,
                past_key_values=past_key_values,
                key_counts=key_counts,
                encoder_key_counts=encoder_key_counts,
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=hidden_states, past_key_values=past_key_values if use_cache else None
        )


class CaptioningModel(CaptioningPreTrainedModel):
    """Encoder over visual tokens and decoder over words, without an output head.

    A subclass sets `self.encoder` (called with `visual_features`, `visual_boxes`, `attention_mask`) and `self.decoder`.
    With a `vision_config` there is `self.vision`, which makes visual tokens of pixels.
    """

    def __init__(self, config):
        super().__init__(config)
        self.vision = None
        if config.vision_config is not None:
            self.vision = VisionModel(config.vision_config)
            self.main_input_name = "pixel_values"

    def get_image_features(
        self,
        pixel_values: torch.FloatTensor,
        pixel_mask: torch.LongTensor | None = None,
        visual_features: torch.FloatTensor | None = None,
        visual_boxes: torch.FloatTensor | None = None,
        attention_mask: torch.Tensor | None = None,
    ) -> VisionOutput:
        """Encodes images into the model's visual inputs: `visual_features`, `visual_boxes` and `attention_mask`.

        Args:
            pixel_values (`torch.FloatTensor` of shape `(batch_size, 3, height, width)`).
            pixel_mask (`torch.LongTensor` of shape `(batch_size, height, width)`, *optional*): 1 = pixel, 0 = padding.
            visual_features: not allowed beside pixels; it is here to be refused.
            visual_boxes, attention_mask: regions to encode and which of them are real, see [`VisionModel`].

        Raises:
            ValueError: the model has no vision encoder, or there are visual features as well.
        """
        if self.vision is None:
            raise ValueError(
                "This captioner has no vision part (vision_config is None): give visual_features, not pixel_values."
            )
        if visual_features is not None:
            raise ValueError("Give the captioner pixel_values or visual_features, not both.")
        return self.vision(pixel_values, pixel_mask, visual_boxes=visual_boxes, attention_mask=attention_mask)

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module):
        self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        visual_features: torch.FloatTensor | None = None,
        visual_boxes: torch.FloatTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        decoder_inputs_embeds: torch.FloatTensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        pixel_values: torch.FloatTensor | None = None,
        pixel_mask: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        r"""
        Args:
            visual_features (`torch.FloatTensor` of shape `(batch_size, num_regions, visual_feature_size)`):
                features of regions, grid cells or video frames.
            visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`, *optional*): `x1, y1, x2, y2`
                divided by the image's width and height. Needed by models with a geometric bias.
            attention_mask (`torch.Tensor` of shape `(batch_size, num_regions)`, *optional*): 1 = real, 0 = padding.
            decoder_input_ids (`torch.LongTensor` of shape `(batch_size * C, length)`): the words so far, C captions
                an image, those of one image next to each other.
            decoder_attention_mask (`torch.Tensor` of shape `(batch_size * C, length)`, *optional*).
            decoder_position_ids (`torch.LongTensor` of shape `(batch_size * C, length)`, *optional*).
            decoder_inputs_embeds (`torch.FloatTensor` of shape `(batch_size * C, length, hidden_size)`, *optional*).
            encoder_outputs (`BaseModelOutput`, *optional*): result of the encoder, to skip it.
            past_key_values (`EncoderDecoderCache`, *optional*).
            use_cache (`bool`, *optional*).
            pixel_values (`torch.FloatTensor` of shape `(batch_size, 3, height, width)`, *optional*): images in place of
                visual features, for a model with a vision part.
            pixel_mask (`torch.LongTensor` of shape `(batch_size, height, width)`, *optional*): 1 = pixel, 0 = padding.
        """
        if pixel_values is not None:
            visual_features, visual_boxes, attention_mask = self.get_image_features(
                pixel_values, pixel_mask, visual_features, visual_boxes, attention_mask
            ).to_tuple()
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                visual_features, visual_boxes=visual_boxes, attention_mask=attention_mask, **kwargs
            )
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoder_outputs = BaseModelOutput(*encoder_outputs)
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            position_ids=decoder_position_ids,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            encoder_attentions=encoder_outputs.attentions,
        )


class CaptioningForConditionalGeneration(CaptioningPreTrainedModel, WordAttentionMixin, GenerationMixin):
    """A captioner with its word classifier. A subclass sets `self.model` and `self.lm_head`.

    Attributes:
        longest_caption (`int`): tokens of a generated caption at most, its end included, where nothing else is said.
    """

    longest_caption = 20
    _tied_weights_keys = {"lm_head.weight": "model.decoder.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.generation_config.max_new_tokens = self.longest_caption
        if config.vision_config is not None:
            self.main_input_name = "pixel_values"

    @torch.no_grad()
    def generate(self, inputs: torch.Tensor | None = None, *args, **kwargs):
        """Caption images; all arguments are those of transformers' `generate()`.

        `pixel_values` (with `pixel_mask` and `visual_boxes`, if any) are turned into visual tokens once, before beams
        are made of them. `inputs` are visual features, or pixels if they have four dimensions.
        """
        if kwargs.get("max_length") is not None:
            kwargs.setdefault("max_new_tokens", None)  # that of the model would win
        if inputs is not None and inputs.ndim == 4:
            kwargs["pixel_values"], inputs = inputs, None
        if kwargs.get("pixel_values") is not None:
            given = ("pixel_values", "pixel_mask", "visual_features", "visual_boxes", "attention_mask")
            kwargs |= self.model.get_image_features(**{name: kwargs.pop(name, None) for name in given})
        return super().generate(inputs, *args, **kwargs)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.LongTensor) -> torch.LongTensor:
        """Teacher forcing: labels `(batch_size, length)` shifted right behind the start token, -100 made padding."""
        shifted = labels.new_full(labels.shape, self.config.decoder_start_token_id)
        shifted[:, 1:] = labels[:, :-1]
        return shifted.masked_fill(shifted == -100, self.config.pad_token_id)

    def prepare_inputs_for_generation(self, input_ids, decoder_attention_mask=None, **kwargs) -> dict:
        if decoder_attention_mask is not None and decoder_attention_mask.ndim == 2:
            # A static cache makes the mask 4-dimensional, in which the number of words is no longer seen.
            kwargs.setdefault("decoder_position_ids", token_positions(decoder_attention_mask))
        return super().prepare_inputs_for_generation(input_ids, decoder_attention_mask=decoder_attention_mask, **kwargs)

    @can_return_tuple
    def forward(
        self,
        visual_features: torch.FloatTensor | None = None,
        visual_boxes: torch.FloatTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.LongTensor | None = None,
        decoder_inputs_embeds: torch.FloatTensor | None = None,
        encoder_outputs: BaseModelOutput | tuple | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        labels: torch.LongTensor | None = None,
        pixel_values: torch.FloatTensor | None = None,
        pixel_mask: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        r"""
        Args:
            visual_features (`torch.FloatTensor` of shape `(batch_size, num_regions, visual_feature_size)`):
                features of regions, grid cells or video frames.
            visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`, *optional*): `x1, y1, x2, y2`
                divided by the image's width and height. Needed by models with a geometric bias.
            attention_mask (`torch.Tensor` of shape `(batch_size, num_regions)`, *optional*): 1 = real, 0 = padding.
            decoder_input_ids (`torch.LongTensor` of shape `(batch_size * C, length)`, *optional*): the words so far,
                C captions an image, those of one image next to each other; made from `labels` if absent.
            decoder_attention_mask (`torch.Tensor` of shape `(batch_size * C, length)`, *optional*).
            decoder_position_ids (`torch.LongTensor` of shape `(batch_size * C, length)`, *optional*).
            decoder_inputs_embeds (`torch.FloatTensor` of shape `(batch_size * C, length, hidden_size)`, *optional*).
            encoder_outputs (`BaseModelOutput`, *optional*): result of the encoder, to skip it.
            past_key_values (`EncoderDecoderCache`, *optional*).
            use_cache (`bool`, *optional*).
            labels (`torch.LongTensor` of shape `(batch_size * C, length)`, *optional*): captions with their end token
                and without a start token; -100 at padding.
            pixel_values (`torch.FloatTensor` of shape `(batch_size, 3, height, width)`, *optional*): images in place of
                visual features, for a model with a vision part.
            pixel_mask (`torch.LongTensor` of shape `(batch_size, height, width)`, *optional*): 1 = pixel, 0 = padding.

        Returns:
            `Seq2SeqLMOutput` with `logits` `(batch_size * C, length, vocab_size)` and, given labels, `loss`: the
            cross-entropy per word (over `num_items_in_batch` words if that is given).
        """
        if labels is not None and decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        num_items_in_batch = kwargs.pop("num_items_in_batch", None)
        outputs = self.model(
            visual_features,
            visual_boxes=visual_boxes,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            decoder_position_ids=decoder_position_ids,
            decoder_inputs_embeds=decoder_inputs_embeds,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            use_cache=use_cache,
            pixel_values=pixel_values,
            pixel_mask=pixel_mask,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            # The decoder inputs are shifted already: `shift_labels` keeps the loss from shifting a second time.
            loss = self.loss_function(
                logits=logits,
                labels=None,
                shift_labels=labels.contiguous(),
                vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )

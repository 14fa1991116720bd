"""The transformer that several families share: feed-forward, encoder and decoder layers, the decoder over words.

The configuration of a model has `hidden_size`, `num_attention_heads`, `num_hidden_layers`, `intermediate_size`,
`vocab_size`, `pad_token_id`, the rates `dropout`, `residual_dropout` and `attention_dropout`, `attention_bias` and
`attention_temperature`.
"""

import copy
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, torch_compilable_check
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention import CROSS_ATTENTIONS, SELF_ATTENTIONS, MultiHeadAttention
from .geometry import sinusoids
from .modeling_base import HubPreTrainedModel, accepts_old_cache_name, refuse_unknown_keywords


class FeedForward(nn.Module):
    """Linear, ReLU, Linear, applied to each token (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dropout = nn.Dropout(config.residual_dropout)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.down(self.dropout(torch.relu(self.up(hidden_states))))


class TransformerLayer(GradientCheckpointingLayer):
    """A layer whose weights get gradients with gradient checkpointing, also if all layers before it are frozen."""

    def __call__(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            # Reentrant checkpoints give a layer's weights no gradient unless one of its inputs has one.
            hidden_states.requires_grad_()
        return super().__call__(hidden_states, *args, **kwargs)


class EncoderLayer(TransformerLayer):
    """Self-attention, with a geometric bias if there is one, and feed-forward, each LayerNorm(x + sublayer(x)).

    Args:
        config (`PreTrainedConfig`): a model's.
        geometric_bias (`nn.Module`, *optional*): makes the additive bias of hidden states and relative geometry.
        norms: `query_norm`, `key_norm` and `norm_affine` of [`attention.MultiHeadAttention`].
    """

    def __init__(self, config: PreTrainedConfig, geometric_bias: nn.Module | None = None, **norms: Any):
        super().__init__()
        self.geometric_bias = geometric_bias
        self.self_attn = MultiHeadAttention(config, **norms)
        self.self_attn_norm: nn.Module = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm: nn.Module = nn.LayerNorm(config.hidden_size)
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


class DecoderLayer(TransformerLayer):
    """Causal self-attention, cross-attention and feed-forward, each LayerNorm(x + sublayer(x))."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
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
        cache: Cache | None = None,
        key_counts: torch.Tensor | None = None,
        encoder_key_counts: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        attended, _ = self.self_attn(
            hidden_states,
            attention_mask=attention_mask,
            cache=cache,
            key_counts=key_counts,
            **kwargs,
        )
        hidden_states = self.self_attn_norm(hidden_states + self.dropout(attended))
        attended, _ = self.encoder_attn(
            hidden_states,
            encoder_hidden_states,
            attention_mask=encoder_attention_mask,
            cache=cache,
            key_counts=encoder_key_counts,
            **kwargs,
        )
        hidden_states = self.encoder_attn_norm(hidden_states + self.dropout(attended))
        return self.feed_forward_norm(hidden_states + self.dropout(self.feed_forward(hidden_states)))


def token_positions(attention_mask: torch.Tensor) -> torch.Tensor:
    """Returns positions `(batch_size, length)` that count the tokens of a mask; 0 before the first."""
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def positions_of_tokens(states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Returns positions `(batch_size or 1, num_tokens)` of states `(batch_size, num_tokens, hidden_size)`."""
    if attention_mask is None:
        return torch.arange(states.shape[1], device=states.device)[None]
    return token_positions(attention_mask)


def positions_of_words(states: torch.Tensor, attention_mask: torch.Tensor | None, cache: Cache | None) -> torch.Tensor:
    """Returns positions `(batch_size or 1, length)` of words `(batch_size, length, …)`, behind those in the cache."""
    length = states.shape[1]
    if attention_mask is not None and attention_mask.ndim == 2:
        return token_positions(attention_mask)[:, -length:]
    past_length = 0 if cache is None else cache.get_seq_length()
    return torch.arange(length, device=states.device)[None] + past_length


def shift_behind_start(labels: torch.Tensor, start: int | None, padding: int | None) -> torch.Tensor:
    """Shifts labels `(batch_size, length)` behind a start token; -100 becomes padding."""
    shifted = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)  # type: ignore[arg-type]
    return shifted.masked_fill(shifted == -100, padding)  # type: ignore[arg-type]


def tokens_in_front(labels: torch.Tensor, start: int) -> torch.Tensor:
    """Returns which labels `(batch_size, length)` stand in front of the words: start tokens and -100."""
    return (torch.eq(labels, -100) | torch.eq(labels, start)).long().cumprod(1).bool()


def labels_from_first_word(labels: torch.Tensor, start: int) -> torch.Tensor:
    """Returns labels `(batch_size, length)` of words alone: those behind start tokens and -100, moved to the left."""
    places = torch.arange(labels.shape[1], device=labels.device) + tokens_in_front(labels, start).sum(1, keepdim=True)
    last = labels.shape[1] - 1
    return labels.gather(1, places.clamp(max=last)).masked_fill(places > last, -100)


def labels_beside_inputs(labels: torch.Tensor, input_ids: torch.Tensor | None, start: int) -> torch.Tensor:
    """Returns labels without a start token that stand beside the decoder's inputs: each is the token after its input.

    Args:
        labels (`torch.LongTensor` of shape `(batch_size, length)`): with a start token in front they are the inputs
            themselves.
        input_ids (`torch.LongTensor` of shape `(batch_size, length)`, *optional*): with a second start token they are
            labels with a start token, which were shifted already.
        start: the start token.
    """
    is_same = (tokens_in_front(labels, start) & torch.eq(labels, start)).any(1, keepdim=True)
    if input_ids is not None:
        is_same &= torch.eq(input_ids, start).sum(1, keepdim=True) < 2
    labels = torch.where(is_same, nn.functional.pad(labels[:, 1:], (0, 1), value=-100), labels)
    return labels.masked_fill(tokens_in_front(labels, start), -100)


def loss_of_words(
    model: Any, logits: torch.Tensor, labels: torch.Tensor | None, num_items_in_batch: Any
) -> torch.Tensor | None:
    """Returns the cross-entropy per word of labels `(batch_size, length)`, -100 at padding; `None` without labels.

    It is divided by `num_items_in_batch` words if that is given. The inputs of the model are shifted already:
    `shift_labels` keeps the loss from shifting a second time.
    """
    if labels is None:
        return None
    return model.loss_function(
        logits=logits,
        labels=None,
        shift_labels=labels.contiguous(),
        vocab_size=model.config.vocab_size,
        num_items_in_batch=num_items_in_batch,
    )


def token_counts(states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Counts the real tokens, `(batch_size, 1)`, of states `(batch_size, num_tokens, hidden_size)`."""
    if attention_mask is None:
        return torch.full((states.shape[0], 1), states.shape[1], device=states.device)
    return attention_mask.long().sum(-1, keepdim=True)


def refuse_missing_past(
    length: int, cache: Cache | None, attention_mask: torch.Tensor | None, position_ids: torch.Tensor | None
) -> None:
    """Refuses words where the mask or the positions count words before them that are neither given nor in the cache.

    Except for positions without words before, only sizes are compared, so that the check works in a traced graph.

    Args:
        length: the number of words given.
        cache: of the words before, *optional*. The states of a static cache have one size from the start: a mask of
            any size fits it.
        attention_mask (`torch.Tensor` of shape `(batch_size, length)` or `(…, length, num_keys)`, *optional*).
        position_ids (`torch.LongTensor` of shape `(batch_size or 1, length)`, *optional*).

    Raises:
        ValueError: there are such words.
    """
    if cache is not None and cache.is_compileable:
        return
    past = 0 if cache is None else cache.get_seq_length()
    if isinstance(attention_mask, torch.Tensor) and attention_mask.shape[-1] != past + length:
        raise ValueError(
            f"The mask counts {attention_mask.shape[-1]} words, but {length} are given and the cache has {past} before "
            "them; without the states of all words before, the next word would be wrong."
        )
    if position_ids is not None and past == 0:
        torch_compilable_check(
            position_ids[..., :1] == 0,
            "The first word given has a later position, but the cache has no states of the words before it; without "
            "them the next word would be wrong.",
        )


def with_attention(config: PreTrainedConfig, implementation: str | None) -> PreTrainedConfig:
    """Returns a configuration like this one with another attention implementation, or itself if that is `None`."""
    if implementation is None:
        return config
    changed = copy.copy(config)
    changed._attn_implementation_internal = implementation  # the property would change the parts that both share
    return changed


class CaptionCache(EncoderDecoderCache):
    """Keys and values of words, and of images, which the captions of an image may share."""

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Reorders those of words; those of images only where each caption has its own, as beams keep their image."""
        self.self_attention_cache.reorder_cache(beam_idx)
        layers: Any = self.cross_attention_cache.layers
        if any(layer.keys is not None and len(layer.keys) == len(beam_idx) for layer in layers):
            self.cross_attention_cache.reorder_cache(beam_idx)


def caption_cache(cache: Cache) -> CaptionCache:
    """Returns this cache as one whose captions may share images; it shares all states with the one given."""
    if isinstance(cache, CaptionCache):
        return cache
    if not isinstance(cache, EncoderDecoderCache):
        return CaptionCache(cache, DynamicCache())
    shared = CaptionCache(cache.self_attention_cache, cache.cross_attention_cache)
    shared.is_updated = cache.is_updated
    return shared


class WordDecoder(HubPreTrainedModel):
    """Transformer decoder over words, with sinusoidal positions (Vaswani et al. 2017) and vanilla attention.

    With `config.attention_temperature = "key_length"` scores are divided by sqrt(key_length + head_dim), eq. 2 of
    Springenberg et al. 2018, where key_length counts what a query may attend to: the words up to and including its own,
    the real visual tokens. A cache, beams and padding thus change nothing.

    Serves C captions of an image at once: with `(B * C, T)` tokens (the captions of an image next to each other) and
    `(B, N, D)` encoder states, each image is encoded, and its keys computed, once.
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
        """Makes the layer of an index; a subclass overrides it where some layers are of another kind."""
        return DecoderLayer(config, layer_idx)

    def embed(
        self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Adds positions to the embeddings of words, both `(batch_size, length, hidden_size)`."""
        positions = sinusoids(position_ids, inputs_embeds.shape[-1]).to(inputs_embeds.dtype)
        return self.dropout(inputs_embeds * inputs_embeds.shape[-1] ** 0.5 + positions)

    def further_layer_inputs(self, **given: Any) -> dict[str, Any]:
        """Returns more keyword arguments for every layer; a subclass overrides it where its layers take some.

        Args:
            given: `input_ids`, `attention_mask`, `position_ids`, `encoder_hidden_states`, `encoder_attention_mask` and
                `cache`, as `forward` has them before the first layer runs.
        """
        return {}

    @accepts_old_cache_name
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        r"""
        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, length)`): the words so far.
            attention_mask (`torch.Tensor` of shape `(batch_size, length)`, *optional*): 1 = word, 0 = padding, on
                either side; positions count real words only.
            position_ids (`torch.LongTensor` of shape `(batch_size, length)`, *optional*).
            encoder_hidden_states (`torch.FloatTensor` of shape `(num_images, num_regions, hidden_size)`).
            encoder_attention_mask (`torch.Tensor` of shape `(num_images, num_regions)`, *optional*).
            cache (`EncoderDecoderCache`, *optional*): another `Cache` serves as its self-attention part.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, length, hidden_size)`, *optional*): in place of
                `input_ids`, before scaling and positions.
            use_cache (`bool`, *optional*).
            kwargs: passed to the layers. `attn_implementation="eager"` applies to this call alone, for attention
                weights: nothing changes for other threads that call the model.

        Raises:
            ValueError: neither or both of `input_ids` and `inputs_embeds`, no encoder states, a number of captions
                that is no multiple of the number of images, or words before these that the cache lacks.
        """
        refuse_unknown_keywords(self, kwargs)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give the decoder exactly one of input_ids (decoder_input_ids) and inputs_embeds.")
        if encoder_hidden_states is None:
            raise ValueError("The decoder needs encoder_hidden_states, such as encoded visual tokens.")
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
            position_ids = positions_of_words(inputs_embeds, attention_mask, cache)

        key_counts, encoder_key_counts = None, None
        if self.config.attention_temperature == "key_length":
            # Before a static cache is used, its mask is made 4-dimensional: the words are counted by their positions.
            key_counts = position_ids + 1
            encoder_key_counts = token_counts(encoder_hidden_states, encoder_attention_mask)

        config = with_attention(self.config, kwargs.get("attn_implementation"))
        causal_mask = create_causal_mask(
            config=config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            cache=cache,
        )
        encoder_mask = create_bidirectional_mask(
            config=config,
            inputs_embeds=inputs_embeds.reshape(num_images, -1, hidden_size),
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )

        hidden_states = self.embed(inputs_embeds, position_ids, attention_mask)
        kwargs |= self.further_layer_inputs(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            cache=cache,
        )
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                encoder_hidden_states,
                attention_mask=causal_mask,
                encoder_attention_mask=encoder_mask,
                cache=cache,
                key_counts=key_counts,
                encoder_key_counts=encoder_key_counts,
                **kwargs,
            )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=hidden_states, cache=cache if use_cache else None
        )

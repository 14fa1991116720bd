"""Language model of RSTNet: predicts the next word from the words so far (Zhang et al. 2021, section 3.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import create_causal_mask
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention import SELF_ATTENTIONS, MultiHeadAttention, TransformerLayer, with_attention
from .captioning import (
    align_labels_with_inputs,
    loss_of_words,
    refuse_missing_past,
    shift_tokens_right,
    strip_start_tokens,
)
from .configuration_rstnet import RSTNetLanguageModelConfig
from .modeling_base import HubPreTrainedModel, accepts_old_cache_name, refuse_unknown_keywords
from .modeling_rstnet_release import MaskedFeedForward, ResidualNorm, WordPositions, current_mask
from .positions import positions_of_tokens
from .text_encoders import make_text_encoder, pretrained_text_weights


@dataclass
class RSTNetLanguageModelOutput(ModelOutput):
    """Predictions `logits` `(batch_size, length, vocab_size)` of the next word, and the language signal s_t.

    The signal is `last_hidden_state`; `hidden_states` and `attentions` are those of the masked self-attention.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    cache: Cache | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


class RSTNetLanguageLayer(TransformerLayer):
    """The masked attention module: causal self-attention and feed-forward."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__()
        self.self_attn = MultiHeadAttention(config, layer_idx, is_causal=True)
        self.self_attn_norm = ResidualNorm(config)
        self.feed_forward = MaskedFeedForward(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        attended, _ = self.self_attn(hidden_states, attention_mask=attention_mask, cache=cache, **kwargs)
        return self.feed_forward(self.self_attn_norm(hidden_states, attended, token_mask), token_mask)


class RSTNetLanguageModel(HubPreTrainedModel):
    r"""Predicts the next word of a caption from the words before it, without an image.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan import RSTNetLanguageModel, RSTNetLanguageModelConfig

    >>> encoder = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> sizes = {"vocab_size": 100, "hidden_size": 32, "num_attention_heads": 4}
    >>> model = RSTNetLanguageModel(RSTNetLanguageModelConfig(text_encoder_config=encoder, **sizes)).eval()
    >>> model(input_ids=torch.tensor([[1, 5, 6]])).logits.shape
    torch.Size([1, 3, 100])

    ```
    """

    config: RSTNetLanguageModelConfig
    word_pieces: torch.Tensor | None
    main_input_name = "input_ids"
    input_modalities = ["text"]
    _no_split_modules = ["RSTNetLanguageLayer"]
    _can_record_outputs = {
        "hidden_states": RSTNetLanguageLayer,
        "attentions": SELF_ATTENTIONS,
    }

    def __init__(self, config: RSTNetLanguageModelConfig):
        super().__init__(config)
        encoder: Any = config.text_encoder_config
        self.text_encoder = make_text_encoder(encoder)
        reads_pieces = config.language_tokenization == "word_pieces"
        self.register_buffer("word_pieces", default_pieces(config) if reads_pieces else None)
        self.projection = nn.Linear(encoder.hidden_size, config.hidden_size)
        self.positions = WordPositions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.layer = RSTNetLanguageLayer(config, layer_idx=config.cached_layers - 1)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.gradient_checkpointing = False
        self.post_init()
        if config.pretrained_text_encoder and self.device.type != "meta":
            weights = pretrained_text_weights(self.text_encoder, config.pretrained_text_encoder)
            self.text_encoder.load_state_dict(weights)

    def initialize(self) -> None:
        if self.word_pieces is not None:
            init.copy_(self.word_pieces, default_pieces(self.config))

    def load_trained(self, source: str) -> None:
        """Loads a trained language model from a folder or the Hub; raises a ValueError if weights are missing."""
        loaded, report = RSTNetLanguageModel.from_pretrained(source, output_loading_info=True)
        if report["missing_keys"]:
            raise ValueError(f"{source} lacks weights of the language model, such as {min(report['missing_keys'])}.")
        self.load_state_dict(loaded.state_dict())

    def get_input_embeddings(self) -> nn.Module:
        return self.text_encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.text_encoder.set_input_embeddings(value)

    def align_vocabulary(self, words: Sequence[str], pieces_of: Callable[[str], Sequence[int]]) -> None:
        """Sets the word pieces of the text encoder for `words`, the vocabulary of captions in the order of its ids.

        `pieces_of` returns the ids of the pieces of a word; special tokens have the form of the text encoder.
        """
        if self.word_pieces is None:
            raise ValueError("This language model reads caption ids (language_tokenization='caption_ids').")
        pieces = [list(pieces_of(word)) for word in words]
        if len(words) != self.config.vocab_size or not all(pieces):
            raise ValueError(f"There are {len(words)} words, not {self.config.vocab_size}, or some have no pieces.")
        self.config.max_word_pieces = max(map(len, pieces))
        table = torch.full((len(words), self.config.max_word_pieces), -1)
        for row, ids in zip(table, pieces, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        self.word_pieces = table.to(self.device)

    def resize_vocabulary(self, vocab_size: int) -> None:
        """Changes the number of words; new words are aligned as in a new model."""
        self.lm_head = self._get_resized_lm_head(self.lm_head, vocab_size)
        self.config.vocab_size = vocab_size
        if self.word_pieces is None:
            encoder: Any = self.config.text_encoder_config
            self.text_encoder.resize_token_embeddings(max(vocab_size, encoder.vocab_size))
        else:
            pieces = default_pieces(self.config).to(self.word_pieces.device)
            unchanged = min(vocab_size, len(self.word_pieces))
            pieces[:unchanged] = self.word_pieces[:unchanged]
            self.word_pieces = pieces

    def word_embeddings(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the inputs of the text encoder for words `(batch_size, length)`."""
        if self.word_pieces is None:
            return {"input_ids": input_ids}
        pieces = self.word_pieces[input_ids]
        real = pieces >= 0
        embeddings = self.get_input_embeddings()(pieces.clamp(min=0)) * real[..., None]
        return {"inputs_embeds": embeddings.sum(-2) / real.sum(-1, keepdim=True).to(embeddings.dtype)}

    @accepts_old_cache_name
    @merge_with_config_defaults
    @can_return_tuple
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        labels: torch.Tensor | None = None,
        with_logits: bool = True,
        **kwargs: Any,
    ) -> RSTNetLanguageModelOutput:
        """Predicts each word from those before it.

        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, length)`, *optional*): the words so far, with the start
                token; computed from `labels` by default.
            attention_mask (`torch.Tensor` of shape `(batch_size, length)`, *optional*): 1 = word, 0 = padding, on
                either side.
            labels (`torch.LongTensor` of shape `(batch_size, length)`, *optional*): captions with their end token; -100
                at padding. Together with `input_ids`, each label is the word after its input.
            with_logits (`bool`, defaults to `True`): whether to compute the predictions.
        """
        refuse_unknown_keywords(self, kwargs)
        start: Any = self.config.bos_token_id
        if input_ids is None:
            if labels is None:
                raise ValueError("The language model needs input_ids (decoder_input_ids of a captioner) or labels.")
            labels, attention_mask = strip_start_tokens(labels, start), None  # padding follows the words
            input_ids = shift_tokens_right(labels, start, self.config.pad_token_id)  # type: ignore[arg-type]
        elif labels is not None:
            labels = align_labels_with_inputs(labels, input_ids, start)
        num_items_in_batch = kwargs.pop("num_items_in_batch", None)
        if with_logits:  # otherwise a captioner calls, which has checked it
            refuse_missing_past(input_ids.shape[1], cache, attention_mask, position_ids)
        if use_cache and cache is None:
            cache = DynamicCache()
        shared, own_cache = None, None
        if cache is not None:
            shared = cache if isinstance(cache, EncoderDecoderCache) else EncoderDecoderCache(cache, DynamicCache())
            own_cache = shared.self_attention_cache
            add_cache_layers(own_cache, self.config.cached_layers)
        if position_ids is None:
            position_ids = positions_of_tokens(input_ids, attention_mask, own_cache)
        # The mask depends on the length of the cache before the text encoder extends it.
        causal_mask = create_causal_mask(
            config=with_attention(self.config, kwargs.get("attn_implementation")),
            inputs_embeds=input_ids[..., None].expand(-1, -1, self.config.hidden_size).to(self.lm_head.weight.dtype),
            attention_mask=attention_mask,
            cache=own_cache,
        )
        hidden_states = self.projection(self.encode(input_ids, attention_mask, position_ids, own_cache))
        hidden_states = hidden_states + self.positions(position_ids, attention_mask, hidden_states.dtype)
        token_mask = current_mask(attention_mask, input_ids.shape[1])
        signal = self.layer(self.dropout(hidden_states), causal_mask, token_mask, shared, **kwargs)
        logits = self.lm_head(signal) if with_logits or labels is not None else None
        return RSTNetLanguageModelOutput(
            loss=None if labels is None else loss_of_words(self, logits, labels, num_items_in_batch),  # type: ignore[arg-type]
            logits=logits,
            last_hidden_state=signal,
            cache=cache if use_cache else None,
        )

    def encode(
        self, input_ids: torch.Tensor, attention_mask: Any, position_ids: torch.Tensor, cache: Cache | None
    ) -> torch.Tensor:
        """Runs the text encoder on words; returns its last states `(batch_size, length, size)`."""
        batch_size, length = input_ids.shape
        if self.config.language_attention == "bidirectional":  # as in the release: padding included, from position 0
            # In decoding, it encodes one word per caption. Beams share many words, so each is encoded once, but not on
            # a GPU, which would have to synchronize to count them.
            if length > 1 or self.training or torch.compiler.is_compiling() or input_ids.device.type != "cpu":
                return self.text_encoder(**self.word_embeddings(input_ids)).last_hidden_state
            distinct, places = input_ids.unique(return_inverse=True)
            return self.text_encoder(**self.word_embeddings(distinct[:, None])).last_hidden_state[places[:, 0]]
        embeddings: Any = getattr(self.text_encoder, "embeddings", None)
        padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
        first = 0 if padding is None else padding + 1  # RoBERTa starts there
        return self.text_encoder(
            **self.word_embeddings(input_ids),
            attention_mask=attention_mask,
            position_ids=(position_ids + first).expand(batch_size, length),
            cache=cache,
            use_cache=cache is not None,
        ).last_hidden_state


def default_pieces(config: RSTNetLanguageModelConfig) -> torch.Tensor:
    """Returns the alignment `(vocab_size, max_word_pieces)` of a new model: each word is the piece with its id."""
    encoder: Any = config.text_encoder_config
    pieces = torch.full((config.vocab_size, config.max_word_pieces), -1)
    pieces[:, 0] = torch.arange(config.vocab_size).clamp(max=encoder.vocab_size - 1)
    return pieces


def add_cache_layers(cache: Cache, number: int) -> None:
    """Extends a cache to `number` layers, all of the same kind."""
    while len(cache.layers) < number:
        kind: Any = cache.layer_class_to_replicate or type(cache.layers[0])
        length = getattr(cache.layers[0], "max_cache_len", None) if cache.layers else None
        cache.layers.append(kind() if length is None else kind(max_cache_len=length))


def language_model_cache(cache: Cache, number: int, length: int) -> Cache:
    """Returns the `length` layers of a cache after the first `number`; creates missing layers."""
    add_cache_layers(cache, number + length)
    return Cache(layers=cache.layers[number:])


__all__ = ["RSTNetLanguageModel", "RSTNetLanguageModelOutput"]

"""Transformer for translation with normalized self-attention in its encoder (Guo et al. 2020, section 6.2)."""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention import EncoderLayer
from .captioning import WordDecoder, WordGenerationMixin, decoded_outputs
from .configuration_nsa_transformer import NSATransformerConfig
from .modeling_base import HubPreTrainedModel, accepts_old_cache_name, check_exactly_one, refuse_unknown_keywords
from .positions import sinusoidal_positions

if TYPE_CHECKING:  # names the file, so that saving with code copies it
    from .pipeline_translation import TranslationPipeline  # noqa: F401


class NSATransformerPreTrainedModel(HubPreTrainedModel):
    config: NSATransformerConfig
    main_input_name = "input_ids"
    input_modalities = ["text"]
    _no_split_modules = ["EncoderLayer", "DecoderLayer"]


class NSATransformerEncoder(NSATransformerPreTrainedModel):
    """Encodes a text: embeddings times sqrt(hidden_size) plus sinusoids, then layers of normalized self-attention."""

    _can_record_outputs = {"hidden_states": EncoderLayer, "attentions": EncoderLayer.attention_class}

    def __init__(self, config: NSATransformerConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(config, query_norm=config.query_norm, key_norm=config.key_norm, norm_affine=config.norm_affine)
            for _ in range(config.num_hidden_layers)
        )
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Takes the arguments for the source of [`NSATransformerForConditionalGeneration.forward`]."""
        refuse_unknown_keywords(self, kwargs)
        check_exactly_one(input_ids=input_ids, inputs_embeds=inputs_embeds)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        scaled = inputs_embeds * self.config.hidden_size**0.5
        hidden_states = self.dropout(scaled + sinusoidal_positions(scaled, attention_mask))
        mask = self.padding_mask(hidden_states, attention_mask)
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask=mask, token_mask=attention_mask, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden_states)


class NSATransformerModel(NSATransformerPreTrainedModel):
    """Encoder and decoder without an output head; see [`NSATransformerConfig`]."""

    _tied_weights_keys = {"encoder.embed_tokens.weight": "decoder.embed_tokens.weight"}

    def __init__(self, config: NSATransformerConfig):
        super().__init__(config)
        self.encoder = NSATransformerEncoder(config)
        self.decoder = WordDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embed_tokens

    def set_input_embeddings(self, value: Any) -> None:
        self.decoder.embed_tokens = self.encoder.embed_tokens = value

    @accepts_old_cache_name
    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """Takes the arguments of [`NSATransformerForConditionalGeneration.forward`], without labels."""
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, inputs_embeds, **kwargs)
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


class NSATransformerForConditionalGeneration(NSATransformerPreTrainedModel, WordGenerationMixin):
    r"""Transformer for translation, with normalized self-attention in its encoder; see [`NSATransformerConfig`].

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan import NSATransformerConfig, NSATransformerForConditionalGeneration

    >>> config = NSATransformerConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    >>> model = NSATransformerForConditionalGeneration(config).eval()
    >>> source = torch.tensor([[17, 25, 8, 2]])
    >>> model.generate(input_ids=source, num_beams=4, length_penalty=0.6, max_new_tokens=7).shape[0]
    1

    ```
    """

    longest_output = 128
    _tied_weights_keys = {
        "lm_head.weight": "model.decoder.embed_tokens.weight",
        "model.encoder.embed_tokens.weight": "model.decoder.embed_tokens.weight",
    }

    def __init__(self, config: NSATransformerConfig):
        super().__init__(config)
        self.model = NSATransformerModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.generation_config.max_new_tokens = self.longest_output
        self.post_init()

    @accepts_old_cache_name
    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """Encodes a source and computes the logits of its translation.

        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, source_length)`): tokens of the source.
            attention_mask (`torch.Tensor` of shape `(batch_size, source_length)`, *optional*): 1 = token, 0 = padding,
                on either side; padding does not count in positions.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, source_length, hidden_size)`, *optional*):
                embeddings instead of `input_ids`, before scaling and positions.
            encoder_outputs (`BaseModelOutput`, *optional*): result of the encoder, to skip it.
            decoder_input_ids, ..., labels: these and the outputs are the same as in
                [`~captioning.CaptioningForConditionalGeneration.forward`].
        """
        return self.predict_words(
            labels,
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            decoder_position_ids=decoder_position_ids,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            encoder_outputs=encoder_outputs,
            cache=cache,
            use_cache=use_cache,
            **kwargs,
        )


__all__ = ["NSATransformerForConditionalGeneration", "NSATransformerModel", "NSATransformerPreTrainedModel"]

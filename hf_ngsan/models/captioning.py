"""The base of all captioners: encoder and decoder around visual tokens, output head and `generate()`."""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple

from .modeling_base import HubPreTrainedModel, accepts_old_cache_name, make_vision_encoder, vision_of
from .transformer import WordDecoder, WordGenerationMixin, decoded_outputs


class CaptioningModel(HubPreTrainedModel):
    """Encoder over visual tokens and decoder over words, without an output head.

    A subclass sets `self.encoder` (called with `visual_features`, `visual_boxes`, `attention_mask`) and `self.decoder`.
    With a `vision_config`, `self.vision` turns pixels into visual tokens.
    """

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
        """Encodes images into visual tokens, which the model takes in place of pixels; see [`VisionModel.forward`].

        Returns:
            `VisionOutput`, with `visual_features`, `visual_boxes` and `attention_mask`.

        Raises:
            ValueError: the model has no vision encoder, or visual features are given too.
        """
        if visual_features is not None:
            raise ValueError("Give the captioner pixel_values or visual_features, not both.")
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
        """Has the arguments of [`CaptioningForConditionalGeneration.forward`], without labels."""
        if pixel_values is not None:
            visual_features, visual_boxes, attention_mask = self.get_visual_tokens(
                pixel_values, pixel_mask, visual_features, visual_boxes, attention_mask
            ).to_tuple()
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
        """Captions images; the arguments are those of transformers' `generate()`.

        `pixel_values` (with `pixel_mask` and `visual_boxes`, if any) are turned into visual tokens once, before they
        are repeated for beams. `inputs` are visual features, or pixels if they have four dimensions.
        """
        inputs = self.replace_pixels(inputs, kwargs)
        return super().generate(inputs, *args, **kwargs)

    def replace_pixels(self, inputs: torch.Tensor | None, kwargs: dict) -> torch.Tensor | None:
        """Puts visual tokens in place of pixels among the arguments of `generate()`; returns its `inputs`."""
        if inputs is not None and inputs.ndim == 4:
            kwargs["pixel_values"], inputs = inputs, None
        if kwargs.get("pixel_values") is not None:
            given = ("pixel_values", "pixel_mask", "visual_features", "visual_boxes", "attention_mask")
            kwargs |= self.model.get_visual_tokens(**{name: kwargs.pop(name, None) for name in given})
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
            cache (`EncoderDecoderCache`, *optional*).
            use_cache (`bool`, *optional*).
            labels (`torch.LongTensor` of shape `(batch_size * C, length)`, *optional*): captions with their end token;
                -100 at padding. A start token in front is dropped. Beside `decoder_input_ids` each label is the token
                after its input.
            pixel_values (`torch.FloatTensor` of shape `(batch_size, 3, height, width)`, *optional*): images in place of
                visual features, for a model with a vision encoder.
            pixel_mask (`torch.LongTensor` of shape `(batch_size, height, width)`, *optional*): 1 = pixel, 0 = padding.

        Returns:
            `Seq2SeqLMOutput` with `logits` `(batch_size * C, length, vocab_size)` and, given labels, `loss`: the
            cross-entropy per word (over `num_items_in_batch` words if that is given).
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

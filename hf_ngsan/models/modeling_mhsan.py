"""MHSAN: a dual encoder of images and captions with multi-head self-attention pooling (Park et al. 2020)."""

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_mhsan import MHSANConfig, MHSANTextConfig
from .contrastive import diversity_penalty, pair_losses
from .initialization import initialize_as_pytorch
from .modeling_base import HubPreTrainedModel, LeftOutPart, refuse_unknown_keywords
from .pooling import MultiHeadPooling, last_states, mean_of_words, selective_pooling
from .recurrent import SRU, SRULayer
from .text_encoders import frozen_modules, load_text_encoder, make_text_encoder, pretrained_text_weights
from .vision_part import make_vision_encoder, vision_of
from .visual_inputs import check_visual_features


@dataclass
class MHSANImageFeatures(BaseModelOutputWithPooling):
    """An image in the joint space.

    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(batch_size, num_regions, hidden_size)`): cells or regions.
        pooler_output (`torch.FloatTensor` of shape `(batch_size, projection_dim)`): the embedding, of length 1.
        attentions (`tuple(torch.FloatTensor)`, *optional*): one tensor `(batch_size, num_image_heads, num_regions)`,
            the map of each head; rows sum to 1. `None` without heads.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*): of the backbone of a model with a vision encoder.
        visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`, *optional*): where the cells or
            regions are, if known.
        attention_mask (`torch.LongTensor` of shape `(batch_size, num_regions)`, *optional*): 1 = real, 0 = padding.
    """

    visual_boxes: torch.Tensor | None = None
    attention_mask: torch.Tensor | None = None


@dataclass
class MHSANOutput(ModelOutput):
    """Similarities of images and captions, as [`~transformers.models.clip.modeling_clip.CLIPOutput`] has them.

    Args:
        loss (`torch.FloatTensor` of shape `()`, *optional*): with `return_loss=True`.
        logits_per_image (`torch.FloatTensor` of shape `(num_images, num_texts)`): cosine similarities divided by the
            configuration's temperature.
        logits_per_text (`torch.FloatTensor` of shape `(num_texts, num_images)`).
        text_embeds (`torch.FloatTensor` of shape `(num_texts, projection_dim)`): of length 1.
        image_embeds (`torch.FloatTensor` of shape `(num_images, projection_dim)`): of length 1.
        text_model_output (`BaseModelOutputWithPooling`): see [`MHSANModel.get_text_features`].
        vision_model_output (`MHSANImageFeatures`): see [`MHSANModel.get_image_features`].
    """

    loss: torch.Tensor | None = None
    logits_per_image: torch.Tensor | None = None
    logits_per_text: torch.Tensor | None = None
    text_embeds: torch.Tensor | None = None
    image_embeds: torch.Tensor | None = None
    text_model_output: BaseModelOutputWithPooling | None = None
    vision_model_output: BaseModelOutputWithPooling | None = None

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(value.to_tuple() if isinstance(value, ModelOutput) else value for value in self.values())


class MHSANTextModel(HubPreTrainedModel):
    """Word vectors and simple recurrent units (section 3.2)."""

    config: MHSANTextConfig
    main_input_name = "input_ids"
    input_modalities = ["text"]
    base_model_prefix = ""
    _no_split_modules = ["SRULayer"]
    _can_compile_fullgraph = False
    _can_record_outputs = {"hidden_states": SRULayer}

    def __init__(self, config: MHSANTextConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.word_embedding_size, config.pad_token_id)
        self.sru = SRU(
            config.word_embedding_size,
            config.hidden_size // 2 if config.bidirectional else config.hidden_size,
            config.num_hidden_layers,
            bidirectional=config.bidirectional,
            activation=config.activation,
            dropout=config.dropout,
            input_dropout=config.input_dropout,
            highway=config.highway,
            highway_bias=config.highway_bias,
            scale_x=config.scale_x,
        )
        self.gradient_checkpointing = False
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, SRULayer):
            module.reset_parameters()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        r"""
        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, length)`, *optional*).
            attention_mask (`torch.Tensor` of shape `(batch_size, length)`, *optional*): 1 = real, 0 = padding, on any
                side.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, length, word_embedding_size)`, *optional*): word
                vectors in place of words.
        """
        refuse_unknown_keywords(self, kwargs)
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give input_ids or inputs_embeds, and not both.")
        words = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        states, _ = self.sru(words.to(self.embed_tokens.weight.dtype), attention_mask)
        return BaseModelOutput(last_hidden_state=states)


class MHSANPreTrainedModel(HubPreTrainedModel):
    config: MHSANConfig
    base_model_prefix = "mhsan"
    main_input_name = "input_ids"
    input_modalities = ["image", "text"]
    _no_split_modules = ["SRULayer"]
    _can_compile_fullgraph = False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initializes linear maps as PyTorch does, and thereby as the released code."""
        super()._init_weights(module)
        initialize_as_pytorch(module)


class MHSANModel(MHSANPreTrainedModel):
    r"""The dual encoder of Park et al. 2020, with the interface of transformers' CLIP.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan import MHSANConfig, MHSANModel

    >>> text = {"vocab_size": 50, "word_embedding_size": 16, "hidden_size": 32}
    >>> config = MHSANConfig(vision_config=None, visual_feature_size=12, text_config=text, hidden_size=32)
    >>> model = MHSANModel(config).eval()
    >>> words = torch.tensor([[4, 5, 6], [7, 8, 0], [9, 0, 0]])
    >>> model(visual_features=torch.rand(2, 49, 12), input_ids=words).logits_per_image.shape
    torch.Size([2, 3])
    >>> model.get_text_features(words).attentions[-1].shape  # captions, heads, words
    torch.Size([3, 10, 3])

    ```
    """

    vision: Any

    def __init__(self, config: MHSANConfig):
        super().__init__(config)
        text_config: Any = config.text_config
        visual_size: Any = config.visual_feature_size
        self.vision = make_vision_encoder(config.vision_config)
        self.has_recurrent_text = text_config.model_type == MHSANTextConfig.model_type
        self.text: Any = MHSANTextModel(text_config) if self.has_recurrent_text else make_text_encoder(text_config)
        self.image_states = nn.Linear(visual_size, config.hidden_size)  # the 1 x 1 convolution
        self.image_pooling = self.make_pooling(config.hidden_size, config.num_image_heads, torch.relu)
        self.text_pooling = self.make_pooling(text_config.hidden_size, config.num_text_heads, torch.tanh)
        self.dropout = nn.Dropout(config.dropout)
        heads = max(1, config.num_image_heads), max(1, config.num_text_heads)
        self.image_projection = nn.Linear(heads[0] * config.hidden_size, config.projection_dim)
        self.text_projection = nn.Linear(heads[1] * text_config.hidden_size, config.projection_dim)
        self.post_init()
        if not config.save_frozen_weights:
            missing = {rf"^text\.{re.escape(name)}$" for name in self.frozen_text_weights()}
            self._keys_to_ignore_on_load_missing = missing.union(self._keys_to_ignore_on_load_missing or ())
        # On `meta` from_pretrained only builds the model; it loads all weights later.
        if config.text_pretrained and self.device.type != "meta":
            load_text_encoder(self.text, config.text_pretrained)
        self.train(self.training)

    def left_out_parts(self) -> list[LeftOutPart]:
        parts = super().left_out_parts()
        source: Any = self.config.text_pretrained
        if not self.config.save_frozen_weights:

            def load() -> dict[str, torch.Tensor]:
                weights = pretrained_text_weights(self.text, source)
                return {name: weights[name] for name in self.frozen_text_weights()}

            parts.append(LeftOutPart("text encoder", "text.", self.text, self.config, source, load))
        return parts

    def frozen_text_weights(self) -> list[str]:
        """Returns the names in the text encoder of the weights that training keeps."""
        number: Any = self.config.frozen_text_layers
        frozen = {one for part in frozen_modules(self.text, number) for one in part.parameters()}
        return [name for name, parameter in self.text.named_parameters() if parameter in frozen]

    def train(self, mode: bool = True) -> "MHSANModel":
        super().train(mode)
        number: Any = self.config.frozen_text_layers
        for part in frozen_modules(self.text, number):
            part.eval().requires_grad_(False)  # also after loading, which makes every weight trainable
        return self

    def make_pooling(self, size: int, num_heads: int, activation: Any) -> MultiHeadPooling | None:
        if not num_heads:
            return None
        return MultiHeadPooling(size, self.config.attention_hidden_size, num_heads, activation, self.config.dropout)

    def get_input_embeddings(self) -> nn.Module:
        return self.text.get_input_embeddings()

    def set_input_embeddings(self, value: Any) -> None:
        self.text.set_input_embeddings(value)

    @can_return_tuple
    def get_image_features(
        self,
        pixel_values: torch.Tensor | None = None,
        visual_features: torch.Tensor | None = None,
        visual_attention_mask: torch.Tensor | None = None,
        visual_boxes: torch.Tensor | None = None,
        pixel_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MHSANImageFeatures:
        r"""
        Args:
            pixel_values (`torch.FloatTensor` of shape `(batch_size, 3, height, width)`, *optional*): images, for a
                model with a vision encoder.
            visual_features (`torch.FloatTensor` of shape `(batch_size, num_regions, visual_feature_size)`, *optional*):
                in place of images.
            visual_attention_mask (`torch.Tensor` of shape `(batch_size, num_regions)`, *optional*): 1 = real, 0 =
                padding.
            visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`, *optional*): with images, the
                regions to encode in place of a grid; features do not need them.
            pixel_mask (`torch.LongTensor` of shape `(batch_size, height, width)`, *optional*): 1 = pixel, 0 = padding.
            kwargs: `output_hidden_states=True` adds the hidden states of the backbone, of images of one size;
                `return_dict=False` returns a tuple. The maps of the heads are returned in any case.

        Raises:
            ValueError: neither or both of images and features, images without a vision encoder, or features of a wrong
                shape.
        """
        refuse_unknown_keywords(self, kwargs)
        if (pixel_values is None) == (visual_features is None):
            raise ValueError("Give the model pixel_values or visual_features, and not both.")
        mask, hidden_states = visual_attention_mask, None
        if pixel_values is not None:
            asked: Any = kwargs.get("output_hidden_states", self.config.output_hidden_states)
            seen = vision_of(self)(
                pixel_values,
                pixel_mask,
                visual_boxes=visual_boxes,
                attention_mask=mask,
                output_hidden_states=asked,
            )
            hidden_states = seen.hidden_states
            features, visual_boxes, mask = seen.visual_features, seen.visual_boxes, seen.attention_mask
        else:
            check_visual_features(visual_features, mask, self.config.visual_feature_size, "visual_attention_mask")
            features = visual_features
        states = self.image_states(features.to(self.image_states.weight.dtype))
        if self.image_pooling is None:
            pooled, weights = selective_pooling(states, mask, self.config.selective_pooling_size), None
        else:
            pooled, weights = self.image_pooling(states, mask)
        projected = self.image_projection(self.dropout(pooled))
        return MHSANImageFeatures(
            last_hidden_state=states,
            pooler_output=nn.functional.normalize(projected, dim=-1),
            hidden_states=hidden_states,
            attentions=None if weights is None else (weights,),
            visual_boxes=visual_boxes,
            attention_mask=mask,
        )

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        r"""
        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, length)`, *optional*).
            attention_mask (`torch.Tensor` of shape `(batch_size, length)`, *optional*): 1 = real, 0 = padding; by
                default all but padding tokens is real.
            token_type_ids (`torch.LongTensor` of shape `(batch_size, length)`, *optional*): for encoders of
                transformers that take them.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, length, size)`, *optional*): word vectors in place
                of words.

        Returns:
            `BaseModelOutputWithPooling` with the text encoder's `last_hidden_state` `(batch_size, length, size)`,
            `pooler_output` `(batch_size, projection_dim)`, the embedding of length 1, and as the last of `attentions`
            the map of each head over the words, `(batch_size, num_text_heads, length)`.

        Raises:
            ValueError: neither or both of words and vectors, or a text without any token.
        """
        refuse_unknown_keywords(self, kwargs)
        given = input_ids if inputs_embeds is None else inputs_embeds
        if given is None or not given.shape[1]:
            raise ValueError("There is no text, or one without any token; give texts of at least one word each.")
        if attention_mask is None:
            pad = getattr(self.text.config, "pad_token_id", None)
            attention_mask = given.new_ones(given.shape[:2], dtype=torch.long)
            if input_ids is not None and pad is not None:
                attention_mask = attention_mask.masked_fill(input_ids == pad, 0)
        if token_type_ids is not None and not self.has_recurrent_text:
            kwargs["token_type_ids"] = token_type_ids  # type: ignore[typeddict-unknown-key]
        kwargs["return_dict"] = True  # type: ignore[typeddict-unknown-key]
        outputs = self.text(input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs)
        states, weights = outputs.last_hidden_state, None
        if self.text_pooling is not None:
            pooled, weights = self.text_pooling(states, attention_mask)
        elif self.has_recurrent_text:
            pooled = last_states(states, attention_mask, self.text.config.bidirectional)
        else:
            pooled = mean_of_words(states, attention_mask)
        projected = self.text_projection(self.dropout(pooled))
        return BaseModelOutputWithPooling(
            last_hidden_state=states,
            pooler_output=nn.functional.normalize(projected, dim=-1),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions if weights is None else (*(outputs.attentions or ()), weights),
        )

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        visual_features: torch.Tensor | None = None,
        visual_attention_mask: torch.Tensor | None = None,
        visual_boxes: torch.Tensor | None = None,
        pixel_mask: torch.Tensor | None = None,
        return_loss: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MHSANOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, inputs_embeds: see [`get_text_features`].
            pixel_values, visual_features, visual_attention_mask, visual_boxes, pixel_mask: see [`get_image_features`].
            return_loss (`bool`, *optional*): whether to return the loss that the configuration describes. Then there
                are C texts an image, those of one image next to each other.

        Raises:
            ValueError: see [`get_image_features`] and [`get_text_features`]; or a loss is asked for and the texts do
                not belong to the images in equal numbers.
        """
        kwargs["return_dict"] = True  # type: ignore[typeddict-unknown-key]
        vision_outputs = self.get_image_features(
            pixel_values, visual_features, visual_attention_mask, visual_boxes, pixel_mask, **kwargs
        )
        text_outputs = self.get_text_features(input_ids, attention_mask, token_type_ids, inputs_embeds, **kwargs)
        image_embeds, text_embeds = vision_outputs.pooler_output, text_outputs.pooler_output
        similarities = image_embeds @ text_embeds.mT
        logits = similarities / self.config.temperature
        return MHSANOutput(
            loss=self.contrastive_loss(similarities, vision_outputs, text_outputs) if return_loss else None,
            logits_per_image=logits,
            logits_per_text=logits.mT,
            text_embeds=text_embeds,
            image_embeds=image_embeds,
            text_model_output=text_outputs,
            vision_model_output=vision_outputs,
        )

    def contrastive_loss(
        self,
        similarities: torch.Tensor,
        vision_outputs: BaseModelOutputWithPooling,
        text_outputs: BaseModelOutputWithPooling,
    ) -> torch.Tensor:
        """Returns eq. 3: the loss over in-batch negatives and the weighted diversity penalties of both sides."""
        num_images, num_texts = similarities.shape
        if num_texts % num_images:
            raise ValueError(
                f"The loss needs the same number of texts for each of {num_images} images, not {num_texts}."
            )
        config = self.config
        of_texts = torch.arange(num_texts, device=similarities.device) // (num_texts // num_images)
        losses = pair_losses(
            similarities.float(),
            torch.arange(num_images, device=similarities.device)[:, None] == of_texts,
            loss=config.loss,
            margin=config.margin,
            temperature=config.temperature,
            hardest_negatives=config.hardest_negatives,
            negated_positives=config.negated_positives,
        )
        loss = losses.sum() if config.loss_reduction == "sum" else losses.mean()
        for outputs, num_heads in ((vision_outputs, config.num_image_heads), (text_outputs, config.num_text_heads)):
            if num_heads and config.diversity_weight:
                attention: Any = outputs.attentions
                penalties = diversity_penalty(attention[-1], config.squared_diversity)
                loss = loss + config.diversity_weight * penalties.mean()
        return loss


__all__ = ["MHSANImageFeatures", "MHSANModel", "MHSANOutput", "MHSANPreTrainedModel", "MHSANTextModel"]

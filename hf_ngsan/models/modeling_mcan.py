"""MCAN: co-attention of questions and images (Yu et al. 2019), optionally with geometry (Guo et al. 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention import CROSS_ATTENTIONS, SELF_ATTENTIONS, EncoderLayer, MultiHeadAttention
from .configuration_mcan import MCANConfig
from .geometry import RelativeGeometryEmbedding, relative_geometry
from .modeling_base import (
    HubPreTrainedModel,
    check_exactly_one,
    check_visual_boxes,
    check_visual_features,
    make_vision_encoder,
    refuse_unknown_keywords,
    vision_of,
)

if TYPE_CHECKING:  # names the file, so that saving with code copies it
    from .pipeline_visual_question_answering import VisualQuestionAnsweringPipeline  # noqa: F401


@dataclass
class MCANOutput(ModelOutput):
    """Outputs for questions and their images.

    Args:
        loss, logits (`(batch_size, num_labels)`): of the classifier; scores of answers are the sigmoids of logits.
        last_hidden_state (`(batch_size, num_regions, hidden_size)`): the image, from models without a classifier.
        pooler_output (`(batch_size, pooled_size)`): question and image, reduced, summed and normalized.
        encoder_last_hidden_state (`(batch_size, num_words, hidden_size)`): states of the question.
        question_glimpses, image_glimpses (`(batch_size, num_glimpses, num_words or num_regions)`): weights of words and
            regions in their reductions; rows sum to 1.
        cross_attentions: guided attention of each layer, `(batch_size, num_heads, num_regions, num_words)`.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None
    encoder_last_hidden_state: torch.Tensor | None = None
    question_glimpses: torch.Tensor | None = None
    image_glimpses: torch.Tensor | None = None
    encoder_hidden_states: tuple[torch.Tensor, ...] | None = None
    decoder_hidden_states: tuple[torch.Tensor, ...] | None = None
    encoder_attentions: tuple[torch.Tensor, ...] | None = None
    decoder_attentions: tuple[torch.Tensor, ...] | None = None
    cross_attentions: tuple[torch.Tensor, ...] | None = None


class UnbiasedLayerNorm(nn.Module):
    """weight * (x - mean) / (std + eps) + bias with the unbiased standard deviation, unlike `torch.nn.LayerNorm`."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        single = states.float()
        normalized = (single - single.mean(-1, keepdim=True)) / (single.std(-1, keepdim=True) + self.eps)
        return self.weight * normalized.to(states.dtype) + self.bias


class MCANEncoderLayer(EncoderLayer):
    """SA unit: self-attention and feed-forward (eq. 3 of Yu et al. 2019), each Norm(x + sublayer(x))."""

    def __init__(self, config: MCANConfig, geometric_bias: Sequence[str] = ()):
        super().__init__(config, geometric_bias)
        self.self_attn_norm = UnbiasedLayerNorm(config.hidden_size, config.norm_eps)
        self.feed_forward_norm = UnbiasedLayerNorm(config.hidden_size, config.norm_eps)


class MCANDecoderLayer(MCANEncoderLayer):
    """SGA unit: self-attention of the image, attention guided by the question, feed-forward, each Norm(x + ...)."""

    def __init__(self, config: MCANConfig):
        super().__init__(config, config.geometric_bias)
        self.encoder_attn = MultiHeadAttention(config)
        self.encoder_attn_norm = UnbiasedLayerNorm(config.hidden_size, config.norm_eps)

    def forward(  # type: ignore[override]
        self,
        hidden_states: torch.Tensor,
        geometry: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        bias = None if self.geometric_bias is None else self.geometric_bias(hidden_states, geometry)
        attended, _ = self.self_attn(hidden_states, attention_mask=attention_mask, position_bias=bias, **kwargs)
        hidden_states = self.self_attn_norm(hidden_states + self.dropout(attended))
        attended, _ = self.encoder_attn(hidden_states, encoder_hidden_states, encoder_attention_mask, **kwargs)
        hidden_states = self.encoder_attn_norm(hidden_states + self.dropout(attended))
        return self.feed_forward_norm(hidden_states + self.dropout(self.feed_forward(hidden_states)))


class GlimpseReduction(nn.Module):
    """Weighted sums of positions, one per glimpse, concatenated and projected: eq. 4 and 5 of Yu et al. 2019."""

    def __init__(self, config: MCANConfig):
        super().__init__()
        self.hidden = nn.Linear(config.hidden_size, config.reduction_hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.scores = nn.Linear(config.reduction_hidden_size, config.num_glimpses)
        self.out_proj = nn.Linear(config.num_glimpses * config.hidden_size, config.pooled_size)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the sums, `(batch_size, pooled_size)`, and the weights, `(batch_size, num_glimpses, length)`."""
        scores = self.scores(self.dropout(torch.relu(self.hidden(states)))).mT.float()
        weights = scores.masked_fill(mask[:, None] == 0, torch.finfo(scores.dtype).min).softmax(-1).to(states.dtype)
        return self.out_proj((weights @ states).flatten(1)), weights


def additive_mask(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """Returns a mask `(batch_size, 1, 1, length)` to be added to scores; returns `None` for `None`.

    It is finite, so that if all keys are padding, every attention implementation gives them equal weights.
    """
    if mask is None:
        return None
    return torch.where(mask != 0, 0.0, torch.finfo(dtype).min).to(dtype)[:, None, None, :]


class MCANPreTrainedModel(HubPreTrainedModel):
    config: MCANConfig
    main_input_name = "input_ids"
    input_modalities = ["image", "text"]
    _no_split_modules = ["MCANEncoderLayer", "MCANDecoderLayer"]
    _supports_flex_attn = False  # it does not support additive masks
    _can_compile_fullgraph = False  # an LSTM is run outside of the graph

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Linear | nn.LSTM):
            module.reset_parameters()  # PyTorch's initialization, as in the released code


class MCANEncoder(MCANPreTrainedModel):
    """Encodes questions: word vectors, an LSTM (padding included, as in the authors' release), and SA units."""

    input_modalities = ["text"]
    _can_record_outputs = {"hidden_states": MCANEncoderLayer, "attentions": SELF_ATTENTIONS}

    def __init__(self, config: MCANConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.word_embedding_size)
        self.lstm = nn.LSTM(config.word_embedding_size, config.hidden_size, batch_first=True)
        self.layers = nn.ModuleList(MCANEncoderLayer(config) for _ in range(config.num_hidden_layers))
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
        """Takes the text arguments of [`MCANModel.forward`]."""
        refuse_unknown_keywords(self, kwargs)
        words = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        hidden_states, _ = self.lstm(words.to(self.embed_tokens.weight.dtype))
        mask = additive_mask(attention_mask, hidden_states.dtype)
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask=mask, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden_states)


class MCANDecoder(MCANPreTrainedModel):
    """Encodes images, guided by the last layer of the encoder: a linear projection of features, then SGA units."""

    main_input_name = "visual_features"
    _can_record_outputs = {
        "hidden_states": MCANDecoderLayer,
        "attentions": SELF_ATTENTIONS,
        "cross_attentions": CROSS_ATTENTIONS,
    }

    def __init__(self, config: MCANConfig):
        super().__init__(config)
        size: Any = config.visual_feature_size
        self.input_proj = nn.Linear(size, config.hidden_size)
        self.geometry_embedding = None
        if config.geometric_bias:
            self.geometry_embedding = RelativeGeometryEmbedding(config.geometry_hidden_size)
        self.layers = nn.ModuleList(MCANDecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        visual_features: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        visual_boxes: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Takes visual arguments of [`MCANModel.forward`], and word states `(batch_size, num_words, hidden_size)`."""
        refuse_unknown_keywords(self, kwargs)
        hidden_states = self.input_proj(visual_features.to(self.input_proj.weight.dtype))
        dtype = hidden_states.dtype
        geometry = None
        if self.geometry_embedding is not None and visual_boxes is not None:
            geometry = self.geometry_embedding(relative_geometry(visual_boxes, self.config.geometry_features))
        mask, encoder_mask = additive_mask(attention_mask, dtype), additive_mask(encoder_attention_mask, dtype)
        for layer in self.layers:
            hidden_states = layer(hidden_states, geometry, encoder_hidden_states, mask, encoder_mask, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden_states)


class MCANModel(MCANPreTrainedModel):
    """MCAN or MCAN + GSA without its classifier of answers; [`MCANConfig`] selects the variant."""

    vision: Any

    def __init__(self, config: MCANConfig):
        super().__init__(config)
        self.vision = make_vision_encoder(config.vision_config)
        self.encoder = MCANEncoder(config)
        self.decoder = MCANDecoder(config)
        self.question_reduction = GlimpseReduction(config)
        self.image_reduction = GlimpseReduction(config)
        self.norm = UnbiasedLayerNorm(config.pooled_size, config.norm_eps)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: Any) -> None:
        self.encoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        visual_features: torch.Tensor | None = None,
        visual_attention_mask: torch.Tensor | None = None,
        visual_boxes: torch.Tensor | None = None,
        pixel_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MCANOutput:
        """Answers questions about images.

        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, num_words)`): one right-padded question per image.
            attention_mask (`torch.Tensor` of shape `(batch_size, num_words)`, *optional*): 1 = word, 0 = padding; by
                default, all tokens except padding tokens are words.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, num_words, word_embedding_size)`, *optional*):
                word vectors instead of words.
            pixel_values, pixel_mask, visual_features, visual_attention_mask, visual_boxes: as for
                [`~modeling_mhsan.MHSANModel.get_image_features`]; models with a geometric bias need the boxes of
                features. By default, a region is padding if all its features are 0, as in the authors' release.
        """
        check_exactly_one(input_ids=input_ids, inputs_embeds=inputs_embeds)
        check_exactly_one(pixel_values=pixel_values, visual_features=visual_features)
        if pixel_values is not None:
            visual_features, visual_boxes, visual_attention_mask = self.get_visual_tokens(
                pixel_values, pixel_mask, visual_boxes, visual_attention_mask
            ).to_tuple()
        features: Any = visual_features
        check_visual_features(features, visual_attention_mask, self.config.visual_feature_size, "visual_attention_mask")
        fields = f"geometric_bias={self.config.geometric_bias}" if self.config.needs_boxes else ""
        check_visual_boxes(visual_boxes, features, fields)
        if visual_attention_mask is None:
            visual_attention_mask = (features != 0).any(-1).long()
        words: Any = input_ids if inputs_embeds is None else inputs_embeds
        if attention_mask is None and input_ids is not None and self.config.pad_token_id is not None:
            attention_mask = (input_ids != self.config.pad_token_id).long()
        elif attention_mask is None:
            attention_mask = torch.ones(words.shape[:2], dtype=torch.long, device=features.device)
        mask: Any = attention_mask
        if not words.shape[1] or not (len(features), words.shape[1]) == words.shape[:2] == mask.shape:
            shapes = f"{len(features)} images and {len(words)} questions; attention_mask is {(*mask.shape,)}"
            raise ValueError(f"There are {shapes}. Pass a question per image, with words, and a mask of its shape.")
        kwargs["return_dict"] = True  # type: ignore[typeddict-unknown-key]
        question = self.encoder(input_ids, attention_mask, inputs_embeds, **kwargs)
        words = question.last_hidden_state
        image = self.decoder(features, words, visual_boxes, visual_attention_mask, attention_mask, **kwargs)
        question_vector, question_glimpses = self.question_reduction(words, attention_mask)
        image_vector, image_glimpses = self.image_reduction(image.last_hidden_state, visual_attention_mask)
        return MCANOutput(
            last_hidden_state=image.last_hidden_state,
            pooler_output=self.norm(question_vector + image_vector),
            encoder_last_hidden_state=words,
            question_glimpses=question_glimpses,
            image_glimpses=image_glimpses,
            encoder_hidden_states=question.hidden_states,
            decoder_hidden_states=image.hidden_states,
            encoder_attentions=question.attentions,
            decoder_attentions=image.attentions,
            cross_attentions=image.get("cross_attentions"),
        )

    def get_visual_tokens(
        self,
        pixel_values: torch.Tensor,
        pixel_mask: torch.Tensor | None = None,
        visual_boxes: torch.Tensor | None = None,
        visual_attention_mask: torch.Tensor | None = None,
    ) -> Any:
        """Encodes images into `visual_features`, `visual_boxes` and `attention_mask`."""
        vision = vision_of(self)
        return vision(pixel_values, pixel_mask, visual_boxes=visual_boxes, attention_mask=visual_attention_mask)


class MCANForVisualQuestionAnswering(MCANPreTrainedModel):
    r"""MCAN or MCAN + GSA with its classifier of answers; [`MCANConfig`] selects the variant.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan import MCANConfig, MCANForVisualQuestionAnswering

    >>> sizes = {"vocab_size": 50, "visual_feature_size": 12, "hidden_size": 32, "num_labels": 7}
    >>> config = MCANConfig(**sizes, geometric_bias=["query"])
    >>> model = MCANForVisualQuestionAnswering(config).eval()
    >>> features, corners = torch.rand(1, 5, 12), torch.rand(1, 5, 2) / 2
    >>> boxes = torch.cat([corners, corners + 0.3], dim=-1)
    >>> model(torch.tensor([[4, 5, 6]]), visual_features=features, visual_boxes=boxes).logits.shape
    torch.Size([1, 7])

    ```
    """

    accepts_loss_kwargs = False  # a Trainer divides the loss by its accumulation steps

    def __init__(self, config: MCANConfig):
        super().__init__(config)
        self.model = MCANModel(config)
        num_answers: Any = config.num_labels
        self.classifier = nn.Linear(config.pooled_size, num_answers)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        visual_features: torch.Tensor | None = None,
        visual_attention_mask: torch.Tensor | None = None,
        visual_boxes: torch.Tensor | None = None,
        pixel_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MCANOutput:
        """Answers questions about images.

        Args:
            input_ids, ..., pixel_mask: see [`MCANModel`].
            labels (`torch.FloatTensor` of shape `(batch_size, num_labels)`, *optional*): scores of answers in [0, 1].
        """
        words_and_pixels = (input_ids, pixel_values, attention_mask, inputs_embeds)
        visual = (visual_features, visual_attention_mask, visual_boxes, pixel_mask)
        outputs = self.model(*words_and_pixels, *visual, **{**kwargs, "return_dict": True})
        logits = self.classifier(outputs.pooler_output)
        loss = None
        if labels is not None:  # summed over the answers
            targets = labels.to(logits.device, torch.float32)
            loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), targets, reduction="sum")
            loss = loss if self.config.loss_reduction == "sum" else loss / len(labels)
        shared = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        return MCANOutput(loss=loss, logits=logits, **shared)


__all__ = ["MCANForVisualQuestionAnswering", "MCANModel", "MCANPreTrainedModel"]

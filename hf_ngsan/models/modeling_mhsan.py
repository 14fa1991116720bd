"""MHSAN: a dual encoder of images and captions with multi-head self-attention pooling (Park et al. 2020)."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs
from transformers.utils.generic import can_return_tuple

from .configuration_hub import from_part
from .configuration_mhsan import MHSANConfig
from .contrastive_losses import diversity_penalty, losses_of, pair_losses, penalties_of
from .modeling_base import (
    HubPreTrainedModel,
    check_exactly_one,
    check_visual_features,
    make_vision_encoder,
    refuse_unknown_keywords,
    vision_of,
)
from .text_encoders import layers_of, make_text_encoder, pretrained_text_weights


@dataclass
class MHSANImageFeatures(BaseModelOutputWithPooling):
    """An image in the joint space.

    `last_hidden_state` `(batch_size, num_regions, hidden_size)` has the cells or regions, `pooler_output` `(batch_size,
    projection_dim)` the embedding, of length 1, and `attentions` one tensor `(batch_size, num_image_heads,
    num_regions)`, the map of each head; rows sum to 1. `hidden_states` are those of the backbone; `visual_boxes`
    `(batch_size, num_regions, 4)` has the boxes, `attention_mask` `(batch_size, num_regions)` 1 for real ones.
    """

    visual_boxes: torch.Tensor | None = None
    attention_mask: torch.Tensor | None = None


@dataclass
class MHSANOutput(ModelOutput):
    """Similarities of images and captions, as in [`~transformers.models.clip.modeling_clip.CLIPOutput`].

    `logits_per_image` `(num_images, num_texts)` are cosine similarities divided by the configuration's temperature;
    `loss` comes with `return_loss=True`. Embeddings have length 1.
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


class MultiHeadPooling(nn.Module):
    """Weighted sums of positions, one for each head, concatenated: eq. 1 and 2 of Park et al. 2020.

    M = softmax(W_a act(W_b V^T)) over the positions, F = M V; the activation is ReLU for images, tanh for texts.
    """

    def __init__(
        self, config: MHSANConfig, size: int, num_heads: int, activation: Callable[[torch.Tensor], torch.Tensor]
    ):
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.hidden = nn.Linear(size, config.attention_hidden_size, bias=False)
        self.scores = nn.Linear(config.attention_hidden_size, num_heads, bias=False)
        self.activation = activation

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the sums, `(batch_size, num_heads * size)`, and their weights, `(batch_size, num_heads, length)`."""
        scores = self.scores(self.activation(self.hidden(self.dropout(states)))).mT
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1, dtype=torch.float32)
        return (weights.to(states.dtype) @ states).flatten(1), weights


def selective_pooling(states: torch.Tensor, mask: torch.Tensor | None, number: int) -> torch.Tensor:
    """Returns half the mean of the `number` largest and of the `number` smallest values of each channel, `(B, size)`.

    Selective spatial pooling (Durand et al. 2017, eq. 3) of states `(batch_size, length, size)` with their mask, as in
    the baseline of Park et al. 2020.
    """
    real = states.new_ones(states.shape[:2]) if mask is None else mask.to(states.dtype)
    padding = (real == 0)[..., None]
    places = torch.arange(states.shape[1], device=states.device)
    counted = (places < real.sum(1, keepdim=True).clamp(max=number))[..., None]
    halves = []
    for sign in (1, -1):
        ordered = (sign * states).masked_fill(padding, -torch.inf).sort(dim=1, descending=True).values
        halves.append(sign * ordered.masked_fill(~counted, 0).sum(1) / counted.sum(1))
    return (halves[0] + halves[1]) / 2


class MHSANModel(HubPreTrainedModel):
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

    config: MHSANConfig
    base_model_prefix = "mhsan"
    main_input_name = "input_ids"
    input_modalities = ["image", "text"]
    vision: Any
    _no_split_modules = ["SRULayer"]
    _can_compile_fullgraph = False

    def __init__(self, config: MHSANConfig):
        super().__init__(config)
        text_config: Any = config.text_config
        visual_size: Any = config.visual_feature_size
        self.vision = make_vision_encoder(config.vision_config)
        make_text = from_part("modeling_mhsan_text.MHSANTextModel") if config.has_recurrent_text else make_text_encoder
        self.text: Any = make_text(text_config)
        self.image_states = nn.Linear(visual_size, config.hidden_size)  # the 1 x 1 convolution

        def pooling(size: int, num_heads: int, activation: Callable) -> MultiHeadPooling | None:
            return MultiHeadPooling(config, size, num_heads, activation) if num_heads else None

        self.image_pooling = pooling(config.hidden_size, config.num_image_heads, torch.relu)
        self.text_pooling = pooling(text_config.hidden_size, config.num_text_heads, torch.tanh)
        self.dropout = nn.Dropout(config.dropout)
        self.image_projection = nn.Linear(max(1, config.num_image_heads) * config.hidden_size, config.projection_dim)
        self.text_projection = nn.Linear(max(1, config.num_text_heads) * text_config.hidden_size, config.projection_dim)
        self.post_init()
        if not config.save_frozen_weights:
            missing = {rf"^text\.{re.escape(name)}$" for name in self.frozen_text_weights()}
            self._keys_to_ignore_on_load_missing = missing.union(self._keys_to_ignore_on_load_missing or ())
        # On `meta`, from_pretrained only builds the model; it loads all weights later.
        if config.text_pretrained and self.device.type != "meta":
            self.text.load_state_dict(pretrained_text_weights(self.text, config.text_pretrained))
        self.train(self.training)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.Linear):
            module.reset_parameters()  # PyTorch's initialization, as in the released code

    def train(self, mode: bool = True) -> "MHSANModel":
        super().train(mode)
        if self.config.frozen_text_layers:
            self.text.eval()
            self.trained_text_layers().train(mode)
            for name in self.frozen_text_weights():
                self.text.get_parameter(name).requires_grad_(False)  # also after loading, which makes all trainable
        return self

    def modules_of_stages(self) -> dict[str, list[nn.Module]]:
        """Returns the modules that each stage of training (section 3.5) adds, without the vision encoder."""
        stages = {
            "projection": [self.image_projection],
            "text": [self.text, self.text_projection, self.text_pooling],
            "image": [self.image_states, self.image_pooling],
        }
        return {name: [module for module in modules if module is not None] for name, modules in stages.items()}

    def trained_text_layers(self) -> nn.ModuleList:
        """Returns the layers of a transformers text encoder after the frozen ones."""
        return layers_of(self.text)[self.config.frozen_text_layers :]

    def frozen_text_weights(self) -> list[str]:
        """Returns the names of the frozen weights in the text encoder."""
        if not self.config.frozen_text_layers:
            return []
        trained = {*self.trained_text_layers().parameters()}
        return [name for name, parameter in self.text.named_parameters() if parameter not in trained]

    def left_out_parts(self) -> list:
        """Returns the text encoder if its frozen weights are left out of checkpoints; see `pretrained_weights`."""
        if self.config.save_frozen_weights:
            return []
        source: Any = self.config.text_pretrained

        def load() -> dict[str, torch.Tensor]:
            weights = pretrained_text_weights(self.text, source)
            return {name: weights[name] for name in self.frozen_text_weights()}

        part = from_part("pretrained_weights.LeftOutPart")
        return [part("text encoder", "text.", self.text, self.config, source, load)]

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
        r"""Embeds images in the joint space.

        Args:
            pixel_values (`torch.FloatTensor` of shape `(batch_size, 3, height, width)`, *optional*): images, for a
                model with a vision encoder.
            visual_features (`torch.FloatTensor` of shape `(batch_size, num_regions, visual_feature_size)`, *optional*):
                features instead of images.
            visual_attention_mask (`torch.Tensor` of shape `(batch_size, num_regions)`, *optional*): 1 = real.
            visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`, *optional*): with images, the
                regions to encode instead of a grid; not needed with features.
            pixel_mask (`torch.LongTensor` of shape `(batch_size, height, width)`, *optional*): 1 = pixel, 0 = padding.
            kwargs: `output_hidden_states=True` adds the hidden states of the backbone; images must have the same size.
        """
        refuse_unknown_keywords(self, kwargs)
        check_exactly_one(pixel_values=pixel_values, visual_features=visual_features)
        mask, hidden_states = visual_attention_mask, None
        if pixel_values is not None:
            with_states: Any = kwargs.get("output_hidden_states", self.config.output_hidden_states)
            tokens = vision_of(self)(pixel_values, pixel_mask, visual_boxes, mask, output_hidden_states=with_states)
            hidden_states = tokens.hidden_states
            features, visual_boxes, mask = tokens.visual_features, tokens.visual_boxes, tokens.attention_mask
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
        """Embeds texts in the joint space.

        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, length)`, *optional*).
            attention_mask (`torch.Tensor` of shape `(batch_size, length)`, *optional*): excludes padding by default.
            token_type_ids (*optional*): for transformers encoders that need them.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, length, size)`, *optional*): replace `input_ids`.

        Returns:
            `BaseModelOutputWithPooling` with the text encoder's `last_hidden_state` `(batch_size, length, size)` and
            the embedding `pooler_output` `(batch_size, projection_dim)`, of length 1. The last of `attentions` is the
            map of each head over the words, `(batch_size, num_text_heads, length)`.
        """
        refuse_unknown_keywords(self, kwargs)
        words = input_ids if inputs_embeds is None else inputs_embeds
        if words is None or not words.shape[1]:
            raise ValueError("A text has no tokens, or there are no texts; pass texts of at least one word each.")
        if attention_mask is None:
            pad = getattr(self.text.config, "pad_token_id", None)
            attention_mask = words.new_ones(words.shape[:2], dtype=torch.long)
            if input_ids is not None and pad is not None:
                attention_mask = attention_mask.masked_fill(input_ids == pad, 0)
        if token_type_ids is not None:
            kwargs["token_type_ids"] = token_type_ids  # type: ignore[typeddict-unknown-key]
        kwargs["return_dict"] = True  # type: ignore[typeddict-unknown-key]
        outputs = self.text(input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs)
        states, weights = outputs.last_hidden_state, None
        if self.text_pooling is not None:
            pooled, weights = self.text_pooling(states, attention_mask)
        elif self.config.has_recurrent_text:
            pooled = self.text.last_states(states, attention_mask)
        else:  # the mean over words
            real = attention_mask.to(states.dtype)[..., None]
            pooled = (states * real).sum(1) / real.sum(1).clamp(min=1)
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
        r"""Compares images with texts.

        Args:
            input_ids, attention_mask, token_type_ids, inputs_embeds: see [`get_text_features`].
            pixel_values, visual_features, visual_attention_mask, visual_boxes, pixel_mask: see [`get_image_features`].
            return_loss (`bool`, *optional*): whether to return the loss of the configuration; this requires C texts per
                image, next to each other.
        """
        kwargs["return_dict"] = True  # type: ignore[typeddict-unknown-key]
        visual = (pixel_values, visual_features, visual_attention_mask, visual_boxes, pixel_mask)
        vision_outputs = self.get_image_features(*visual, **kwargs)
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
        """Returns eq. 3: the loss over in-batch negatives plus the weighted diversity penalties of both sides."""
        num_images, num_texts = similarities.shape
        if num_texts % num_images:
            raise ValueError(f"The loss needs equally many texts for each of {num_images} images, not {num_texts}.")
        image_of_text = torch.arange(num_texts, device=similarities.device) // (num_texts // num_images)
        is_own = torch.arange(num_images, device=similarities.device)[:, None] == image_of_text
        losses = losses_of(self.config, similarities.float(), is_own)
        loss = losses.sum() if self.config.loss_reduction == "sum" else losses.mean()
        for penalties in penalties_of(self.config, vision_outputs, text_outputs).values():
            loss = loss + self.config.diversity_weight * penalties.mean()
        return loss


__all__ = ["MHSANImageFeatures", "MHSANModel", "MHSANOutput", "diversity_penalty", "pair_losses"]

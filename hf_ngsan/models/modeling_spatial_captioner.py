"""Spatial captioner: self-attention over the cells of a convolutional feature map (Springenberg et al. 2018)."""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention import DecoderLayer, EncoderLayer, MultiHeadAttention
from .captioning import CaptioningForConditionalGeneration, CaptioningModel, DecoderInputs, WordDecoder
from .configuration_spatial_captioner import SpatialCaptionerConfig
from .geometry import absolute_geometry
from .modeling_base import HubPreTrainedModel
from .positions import sinusoidal_positions

if TYPE_CHECKING:  # names the file, so that saving with code copies it
    from .pipeline_image_to_text import ImageToTextPipeline  # noqa: F401


class SpatialCaptionerPreTrainedModel(HubPreTrainedModel):
    config: SpatialCaptionerConfig
    main_input_name = "visual_features"
    input_modalities = ["image", "text"]
    _no_split_modules = ["SpatialEncoderLayer", "SpatialDecoderLayer"]


class SpatialAttention(MultiHeadAttention):
    """Attention whose scores are divided by sqrt(d_len + d_attn): eq. 2, with d_attn the channels per head.

    d_len is the number of keys that a query may attend to: the words up to and including its word, or real grid cells.
    """

    def weighted_sum(  # type: ignore[override]
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float,
        key_counts: torch.Tensor | None = None,
        encoder_key_counts: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Also takes d_len of each query, `(num_images or 1, query_length or 1)`; the default uses sqrt(d_attn)."""
        if encoder_key_counts is not None and not self.is_causal:
            key_counts = encoder_key_counts
        if key_counts is not None:
            # Scales the queries, because the attention interface has one scaling for all of them.
            captions_per_image = query.shape[0] // key_counts.shape[0]
            key_counts = key_counts[:, None].expand(-1, captions_per_image, -1).flatten(0, 1)
            temperature = (key_counts.float() + self.head_dim).sqrt()[..., None]
            query, scaling = (query / temperature).to(query.dtype), 1.0
        return super().weighted_sum(query, key, value, attention_mask, scaling, **kwargs)


class SpatialEncoderLayer(EncoderLayer):
    attention_class = SpatialAttention


class SpatialDecoderLayer(DecoderLayer):
    """A decoder layer whose residual connection starts from the query input.

    The paper has LayerNorm(Attn + V_input), which is undefined between captions and images.
    """

    attention_class = SpatialAttention


def token_counts(states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Counts the real tokens, `(batch_size, 1)`, of states `(batch_size, num_tokens, hidden_size)`."""
    if attention_mask is None:
        return torch.full((states.shape[0], 1), states.shape[1], device=states.device)
    return attention_mask.long().sum(-1, keepdim=True)


class SpatialCaptionerEncoder(SpatialCaptionerPreTrainedModel):
    """Encodes the cells of a feature map, row by row, with sinusoids of their positions (section 2.1)."""

    _can_record_outputs = {"hidden_states": SpatialEncoderLayer, "attentions": SpatialAttention}

    def __init__(self, config: SpatialCaptionerConfig):
        super().__init__(config)
        self.input_proj = None
        if config.visual_feature_size != config.hidden_size:
            size: Any = config.visual_feature_size
            self.input_proj = nn.Linear(size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(SpatialEncoderLayer(config) for _ in range(config.encoder_layers))
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        visual_features: torch.Tensor,
        visual_boxes: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Takes the visual arguments of [`SpatialCaptionerForConditionalGeneration.forward`], with cells row by row.

        Boxes are required with `position_embedding="boxes"`, otherwise ignored. Positions count only real cells.
        """
        needed_by = "position_embedding='boxes'" if self.config.position_embedding == "boxes" else ""
        boxes = visual_boxes if needed_by else None
        self.check_visual_inputs(visual_features, attention_mask, kwargs, boxes, needed_by)
        hidden_states = visual_features.to(self.dtype)
        if self.input_proj is not None:
            hidden_states = self.input_proj(hidden_states)
        if boxes is not None:
            positions = absolute_geometry(boxes, self.config.hidden_size).to(hidden_states.dtype)
        else:
            positions = sinusoidal_positions(hidden_states, attention_mask)
        hidden_states = self.dropout(hidden_states + positions)
        key_counts = None
        if self.config.attention_temperature == "key_length":
            key_counts = token_counts(hidden_states, attention_mask)
        mask = self.padding_mask(hidden_states, attention_mask)
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask=mask, key_counts=key_counts, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden_states)


class SpatialCaptionerDecoder(WordDecoder):
    """A decoder over words whose attention has the temperature of eq. 2 (section 2.2)."""

    _no_split_modules = ["SpatialDecoderLayer"]

    def make_layer(self, config: Any, layer_idx: int) -> nn.Module:
        return SpatialDecoderLayer(config, layer_idx)

    def inputs_of_layers(self, inputs: DecoderInputs) -> dict[str, Any]:
        if self.config.attention_temperature != "key_length":
            return {}
        cells = token_counts(inputs.encoder_hidden_states, inputs.encoder_attention_mask)
        # Counts words by positions, because the mask of a static cache has 4 dimensions.
        return {"key_counts": inputs.position_ids + 1, "encoder_key_counts": cells}


class SpatialCaptionerModel(SpatialCaptionerPreTrainedModel, CaptioningModel):
    """The spatial captioner without its word classifier."""

    def __init__(self, config: SpatialCaptionerConfig):
        super().__init__(config)
        self.encoder = SpatialCaptionerEncoder(config)
        self.decoder = SpatialCaptionerDecoder(config)
        self.post_init()


class SpatialCaptionerForConditionalGeneration(SpatialCaptionerPreTrainedModel, CaptioningForConditionalGeneration):
    r"""Spatial captioner of Springenberg et al. 2018. By default, it generates up to 14 words and the end token.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan import SpatialCaptionerConfig, SpatialCaptionerForConditionalGeneration

    >>> sizes = {"hidden_size": 32, "visual_feature_size": 16, "num_attention_heads": 4}
    >>> config = SpatialCaptionerConfig(vocab_size=100, vision_config=None, **sizes)  # without VGG: features only
    >>> model = SpatialCaptionerForConditionalGeneration(config).eval()
    >>> model.generate(visual_features=torch.rand(1, 14 * 14, 16), num_beams=3).shape[0]
    1

    ```
    """

    longest_output = 15

    def __init__(self, config: SpatialCaptionerConfig):
        super().__init__(config)
        self.model = SpatialCaptionerModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()


__all__ = ["SpatialCaptionerForConditionalGeneration", "SpatialCaptionerModel", "SpatialCaptionerPreTrainedModel"]

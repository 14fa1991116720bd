"""The NG-SAN family: normalized and geometry-aware self-attention for captioning (Guo et al. 2020)."""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention import EncoderLayer
from .captioning import CaptioningForConditionalGeneration, CaptioningModel, WordDecoder
from .configuration_ngsan import NGSANConfig
from .geometry import RelativeGeometryEmbedding, absolute_geometry, relative_geometry
from .modeling_base import HubPreTrainedModel
from .positions import sinusoidal_positions

if TYPE_CHECKING:  # names the file, so that saving with code copies it
    from .pipeline_image_to_text import ImageToTextPipeline  # noqa: F401


class NGSANEncoderLayer(EncoderLayer):
    """Normalized geometry-aware self-attention and feed-forward, each LayerNorm(x + sublayer(x))."""

    def __init__(self, config: NGSANConfig):
        norms = {name: getattr(config, name) for name in ("query_norm", "key_norm", "norm_affine")}
        super().__init__(config, config.geometric_bias, **norms)


class NGSANPreTrainedModel(HubPreTrainedModel):
    config: NGSANConfig
    main_input_name = "visual_features"
    input_modalities = ["image", "text"]
    _no_split_modules = ["NGSANEncoderLayer", "DecoderLayer"]


class NGSANEncoder(NGSANPreTrainedModel):
    """Encodes a set of visual tokens; their order matters only with temporal positions."""

    _can_record_outputs = {"hidden_states": NGSANEncoderLayer, "attentions": NGSANEncoderLayer.attention_class}

    def __init__(self, config: NGSANConfig):
        super().__init__(config)
        size: Any = config.visual_feature_size
        self.input_proj = nn.Linear(size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.geometry_embedding: Any = None
        if config.geometric_bias:
            self.geometry_embedding = RelativeGeometryEmbedding(config.geometry_hidden_size)
        self.layers = nn.ModuleList(NGSANEncoderLayer(config) for _ in range(config.num_hidden_layers))
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
        """Takes the visual arguments of [`NGSANForConditionalGeneration.forward`]."""
        config = self.config
        needed_by = f"geometric_bias={config.geometric_bias} and absolute_geometry={config.absolute_geometry}"
        needed_by = needed_by if config.needs_boxes else ""
        self.check_visual_inputs(visual_features, attention_mask, kwargs, visual_boxes, needed_by)
        hidden_states = torch.relu(self.input_proj(visual_features.to(self.dtype)))
        if config.absolute_geometry and visual_boxes is not None:
            hidden_states = hidden_states + absolute_geometry(visual_boxes, config.hidden_size).to(hidden_states)
        if config.temporal_positions:
            hidden_states = hidden_states + sinusoidal_positions(hidden_states, attention_mask)
        hidden_states = self.dropout(hidden_states)
        geometry = None
        if self.geometry_embedding is not None and visual_boxes is not None:
            geometry = self.embed_geometry(visual_boxes)
        mask = self.padding_mask(hidden_states, attention_mask)
        token_mask = self.needed_mask(attention_mask) if self.training else attention_mask
        for layer in self.layers:
            hidden_states = layer(hidden_states, geometry, mask, token_mask, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden_states)

    def embed_geometry(self, boxes: torch.Tensor) -> torch.Tensor:
        """Maps boxes `(B, N, 4)` to the geometry G of each pair `(B, N, N, geometry_hidden_size)`, eq. 9."""
        return self.geometry_embedding(relative_geometry(boxes, self.config.geometry_features))


class NGSANModel(NGSANPreTrainedModel, CaptioningModel):
    """SAN, N-SAN, G-SAN or NG-SAN without its word classifier; [`NGSANConfig`] selects the variant."""

    def __init__(self, config: NGSANConfig):
        super().__init__(config)
        self.encoder = NGSANEncoder(config)
        self.decoder = WordDecoder(config)
        self.post_init()


class NGSANForConditionalGeneration(NGSANPreTrainedModel, CaptioningForConditionalGeneration):
    r"""SAN, N-SAN, G-SAN or NG-SAN captioner; [`NGSANConfig`] selects the variant.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration

    >>> config = NGSANConfig(vocab_size=100, visual_feature_size=16, hidden_size=32, num_attention_heads=4)
    >>> model = NGSANForConditionalGeneration(config).eval()
    >>> features, corners = torch.rand(1, 5, 16), torch.rand(1, 5, 2) / 2
    >>> boxes = torch.cat([corners, corners + 0.3], dim=-1)
    >>> model.generate(visual_features=features, visual_boxes=boxes, num_beams=3, max_new_tokens=7).shape[0]
    1

    ```
    """

    def __init__(self, config: NGSANConfig):
        super().__init__(config)
        self.model = NGSANModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()


__all__ = ["NGSANForConditionalGeneration", "NGSANModel", "NGSANPreTrainedModel"]

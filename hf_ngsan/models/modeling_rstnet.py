"""RSTNet: grid-augmented encoder, adaptive attention between visual tokens and language (Zhang et al. 2021)."""

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.import_utils import is_tracing
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import CROSS_ATTENTIONS, SELF_ATTENTIONS, MultiHeadAttention, TransformerLayer
from .captioning import CaptioningModel, DecoderInputs, WordDecoder
from .configuration_rstnet import RSTNetConfig
from .geometry import GeometricBias, RelativeGeometryEmbedding, center_and_size, geometry_of_pairs, grid_boxes
from .modeling_base import HubPreTrainedModel, check_visual_boxes
from .modeling_rstnet_generation import VisualnessGenerationMixin
from .modeling_rstnet_language_model import RSTNetLanguageModel, language_model_cache
from .modeling_rstnet_release import (
    MIN_WEIGHT,
    GridAttention,
    MaskedFeedForward,
    ResidualNorm,
    WordPositions,
    current_mask,
    grid_shape,
    positions_of_grid,
    sinusoidal_geometry,
)

if TYPE_CHECKING:  # names the file, so that saving with code copies it
    from .pipeline_image_to_text import ImageToTextPipeline  # noqa: F401


class GridGeometry(nn.Module):
    """Geometric weights lambda of pairs of cells (eq. 4-6), as an attention bias shared by all encoder layers."""

    def __init__(self, config: RSTNetConfig):
        super().__init__()
        self.size_offset = float(config.grid_size_offset)
        self.channels = config.geometry_hidden_size
        self.is_logarithm = config.geometry_fusion == "log"
        self.embedding = None
        if config.geometry_embedding == "linear":
            self.embedding = RelativeGeometryEmbedding(self.channels)
        self.weights = GeometricBias(config.hidden_size, config.num_attention_heads, self.channels, ["content"])

    def forward(self, boxes: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Returns the bias `(B or 1, h, N, N)` for boxes `(B or 1, N, 4)`, in the dtype of the states."""
        center, size = center_and_size(boxes)
        geometry = geometry_of_pairs(center, size + self.size_offset)  # eq. 2 and 3
        if self.embedding is None:
            geometry = sinusoidal_geometry(geometry, self.channels).to(states.dtype)
        else:
            geometry = self.embedding(geometry)
        weights = self.weights(states, geometry)
        return weights.clamp(min=MIN_WEIGHT).log() if self.is_logarithm else weights


class RSTNetEncoderLayer(TransformerLayer):
    """Self-attention with geometric weights (eq. 14 and 15) and feed-forward."""

    def __init__(self, config: RSTNetConfig):
        super().__init__()
        self.self_attn = GridAttention(config)
        self.self_attn_norm = ResidualNorm(config)
        self.feed_forward = MaskedFeedForward(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        geometric_bias: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        placed = hidden_states if positions is None else hidden_states + positions
        attended, _ = self.self_attn(
            placed, (placed, hidden_states), attention_mask, position_bias=geometric_bias, **kwargs
        )
        return self.feed_forward(self.self_attn_norm(hidden_states, attended, inner=placed))


class AdaptiveAttention(GridAttention):
    """Cross-attention with the language signal as an extra key and value of each query: eq. 17-20 of Zhang et al. 2021.

    Scores are divided by sqrt(d), which eq. 18 omits. The weights have no dropout and do not depend on the attention
    implementation. In training, a share `config.language_signal_dropout` of words attends only to visual tokens.
    """

    def __init__(self, config: RSTNetConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.signal_dropout = config.language_signal_dropout
        self.signal_proj = None
        if config.language_signal_projection == "separate":
            self.signal_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.attention_bias)

    def forward(  # type: ignore[override]
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: Any,
        language_signal: torch.Tensor,
        token_mask: torch.Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        attn_implementation: str | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Takes the arguments of [`GridAttention`], the signal s_t of each query, and the mask of visual tokens.

        Returns the output, shaped as `hidden_states`; the weights `(batch_size, num_heads, query_length, num_regions +
        1)`, with the language signal last (`None` unless the implementation is eager); and visualness `(batch_size,
        query_length)`, 1 minus the mean over heads of the signal's weight (eq. 22-24), in float32.
        """
        batch_size, query_length, _ = hidden_states.shape
        key, value = self.keys_and_values(encoder_hidden_states, None, cache)
        num_images = key.shape[0]
        captions_per_image = batch_size // num_images

        def per_image(states: torch.Tensor) -> torch.Tensor:
            return self.split_heads(states.reshape(num_images, captions_per_image * query_length, -1))

        query = per_image(self.q_proj(hidden_states)) * self.scaling
        if self.signal_proj is None:
            signal_key, signal_value = (per_image(project(language_signal)) for project in (self.k_proj, self.v_proj))
        else:
            signal_key = signal_value = per_image(self.signal_proj(language_signal))
        scores = query @ key.mT
        if token_mask is not None:
            scores = scores.masked_fill(token_mask[:, None, None, :] == 0, torch.finfo(scores.dtype).min)
        signal_scores = (query * signal_key).sum(-1, keepdim=True)
        if self.training and self.signal_dropout:
            dropped = torch.rand_like(signal_scores[:, :1], dtype=torch.float32) < self.signal_dropout
            signal_scores = signal_scores.masked_fill(dropped, torch.finfo(scores.dtype).min)
        scores = torch.cat([scores, signal_scores], dim=-1)
        weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32)
        visualness = 1 - weights[..., -1].mean(1).reshape(batch_size, query_length)
        weights = weights.to(value.dtype)
        output = weights[..., :-1] @ value + weights[..., -1:] * signal_value
        output = self.out_proj(output.transpose(1, 2).reshape(batch_size, query_length, -1))
        if (attn_implementation or self.config._attn_implementation) != "eager":
            return output, None, visualness
        weights = weights.unflatten(2, (captions_per_image, query_length)).transpose(1, 2).flatten(0, 1)
        return output, weights, visualness


class RSTNetDecoderLayer(TransformerLayer):
    """Causal self-attention, cross-attention (with the language signal if the layer is adaptive), and feed-forward."""

    def __init__(self, config: RSTNetConfig, layer_idx: int, is_adaptive: bool):
        super().__init__()
        self.self_attn = MultiHeadAttention(config, layer_idx, is_causal=True)
        self.self_attn_norm = ResidualNorm(config)
        self.is_adaptive = is_adaptive
        self.encoder_attn = (AdaptiveAttention if is_adaptive else GridAttention)(config, layer_idx)
        self.encoder_attn_norm = ResidualNorm(config)
        self.feed_forward = MaskedFeedForward(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Any = None,
        token_mask: torch.Tensor | None = None,
        encoder_token_mask: torch.Tensor | None = None,
        encoder_positions: torch.Tensor | None = None,
        language_signal: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        attended, _ = self.self_attn(hidden_states, attention_mask=attention_mask, cache=cache, **kwargs)
        hidden_states = self.self_attn_norm(hidden_states, attended, token_mask)
        cells: Any = encoder_hidden_states
        if encoder_positions is not None:
            cells = (encoder_hidden_states + encoder_positions, encoder_hidden_states)
        if self.is_adaptive:
            implementation = kwargs.get("attn_implementation")
            attended = self.encoder_attn(
                hidden_states, cells, language_signal, encoder_token_mask, cache, implementation
            )[0]
        else:
            attended, _ = self.encoder_attn(hidden_states, cells, encoder_attention_mask, cache=cache, **kwargs)
        hidden_states = self.encoder_attn_norm(hidden_states, attended, token_mask)
        return self.feed_forward(hidden_states, token_mask)


class RSTNetPreTrainedModel(HubPreTrainedModel):
    config: RSTNetConfig
    main_input_name = "visual_features"
    input_modalities = ["image", "text"]
    _no_split_modules = ["RSTNetEncoderLayer", "RSTNetDecoderLayer", "RSTNetLanguageLayer"]

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Changes the number of words, also in the language model."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        model: Any = self.base_model
        language_model = model.decoder.language_model
        if language_model is not None and language_model.config.vocab_size != embeddings.num_embeddings:
            language_model.resize_vocabulary(embeddings.num_embeddings)
        return embeddings


class RSTNetEncoder(RSTNetPreTrainedModel):
    """Encodes the cells of a grid, or regions with boxes, with the geometry of their pairs (section 3.1 and 3.3)."""

    _can_record_outputs = {"hidden_states": RSTNetEncoderLayer, "attentions": SELF_ATTENTIONS}

    def __init__(self, config: RSTNetConfig):
        super().__init__(config)
        size: Any = config.visual_feature_size
        self.input_proj = nn.Linear(size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.input_norm = nn.LayerNorm(config.hidden_size) if config.input_norm else None
        self.geometry = GridGeometry(config) if config.geometry_fusion is not None else None
        self.layers = nn.ModuleList(RSTNetEncoderLayer(config) for _ in range(config.encoder_layers))
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
        """Takes the visual arguments of [`RSTNetForConditionalGeneration.forward`], with cells row by row.

        Boxes are ignored if the configuration has a `grid_size` or no geometry. Without boxes, the tokens must form a
        square grid; otherwise a ValueError is raised.
        """
        self.check_visual_inputs(visual_features, attention_mask, kwargs)
        hidden_states = self.dropout(torch.relu(self.input_proj(visual_features.to(self.dtype))))
        if self.input_norm is not None:
            hidden_states = self.input_norm(hidden_states)
        if attention_mask is not None:
            hidden_states = hidden_states * attention_mask[..., None].to(hidden_states.dtype)
        geometric_bias = None
        if self.geometry is not None:
            boxes = self.boxes_of(hidden_states, visual_boxes, attention_mask)
            geometric_bias = self.geometry(boxes, hidden_states).expand(hidden_states.shape[0], -1, -1, -1)
        mask = self.padding_mask(hidden_states, attention_mask)
        positions = positions_of_grid(self.config, hidden_states)
        for layer in self.layers:
            hidden_states = layer(hidden_states, geometric_bias, positions, attention_mask=mask, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden_states)

    def boxes_of(
        self, states: torch.Tensor, boxes: torch.Tensor | None, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Returns boxes `(batch_size or 1, num_regions, 4)` of the visual tokens."""
        if self.config.grid_size is None:
            if boxes is not None:
                check_visual_boxes(boxes, states, "")
                return boxes
            if (mask := self.needed_mask(attention_mask)) is not None and not is_tracing(mask) and not bool(mask.all()):
                raise ValueError("visual_boxes are missing; images with different numbers of visual tokens need them.")
        return grid_boxes(*grid_shape(self.config, states.shape[1]), device=states.device)[None]


class RSTNetDecoder(RSTNetPreTrainedModel, WordDecoder):
    """Plain decoder layers and one adaptive layer, with the frozen language model (section 3.3).

    The keys and values of the language model are in the decoder's cache, after those of its layers.
    """

    main_input_name = "input_ids"
    _can_record_outputs = {
        "hidden_states": RSTNetDecoderLayer,
        "attentions": SELF_ATTENTIONS,
        "cross_attentions": CROSS_ATTENTIONS,
        "visualness": OutputRecorder(AdaptiveAttention, index=2, layer_name="encoder_attn"),
    }

    def __init__(self, config: RSTNetConfig):
        super().__init__(config)
        self.positions = WordPositions(config)
        self.language_model: Any = None
        if config.adaptive_attention:
            self.language_model = RSTNetLanguageModel(config.language_model_config)  # type: ignore[arg-type]
        self.post_init()
        if config.pretrained_language_model and self.device.type != "meta":
            self.language_model.load_trained(config.pretrained_language_model)
        self.train(self.training)

    def make_layer(self, config: Any, layer_idx: int) -> nn.Module:
        return RSTNetDecoderLayer(config, layer_idx, is_adaptive=layer_idx == config.plain_decoder_layers)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.language_model is not None:  # also after loading, which makes every weight trainable
            self.language_model.eval().requires_grad_(False)
        return self

    def embed(
        self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        scale = self.config.hidden_size**0.5 if self.config.scale_embeddings else 1.0
        return self.dropout(inputs_embeds * scale + self.positions(position_ids, attention_mask, inputs_embeds.dtype))

    def inputs_of_layers(self, inputs: DecoderInputs) -> dict[str, Any]:
        further = {
            "token_mask": current_mask(inputs.attention_mask, inputs.position_ids.shape[-1]),
            "encoder_token_mask": inputs.encoder_attention_mask,
            "encoder_positions": positions_of_grid(self.config, inputs.encoder_hidden_states),
        }
        if self.language_model is None:
            return further
        language_cache = None
        if inputs.cache is not None:
            layers = self.config.num_hidden_layers, self.language_model.config.cached_layers
            language_cache = language_model_cache(inputs.cache.self_attention_cache, *layers)
        with torch.no_grad():
            outputs = self.language_model(
                inputs.input_ids, inputs.attention_mask, inputs.position_ids, language_cache, with_logits=False
            )
        return {**further, "language_signal": outputs.last_hidden_state}


class RSTNetModel(RSTNetPreTrainedModel, CaptioningModel):
    """RSTNet without its word classifier."""

    def __init__(self, config: RSTNetConfig):
        super().__init__(config)
        self.encoder = RSTNetEncoder(config)
        self.decoder = RSTNetDecoder(config)
        self.post_init()


class RSTNetForConditionalGeneration(RSTNetPreTrainedModel, VisualnessGenerationMixin):
    r"""RSTNet or one of its ablations; [`RSTNetConfig`] selects the variant.

    With eager attention, the last of `cross_attentions` belongs to the adaptive layer: `(batch_size, num_heads, length,
    num_regions + 1)`, with the weight of the language signal at the end.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan import RSTNetConfig, RSTNetForConditionalGeneration

    >>> encoder = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> sizes = {"vocab_size": 100, "visual_feature_size": 16, "hidden_size": 32, "num_attention_heads": 4}
    >>> config = RSTNetConfig(language_model_config={"text_encoder_config": encoder}, **sizes)
    >>> model = RSTNetForConditionalGeneration(config).eval()
    >>> model.generate(visual_features=torch.rand(1, 7 * 7, 16), num_beams=3, max_new_tokens=7).shape[0]
    1

    ```
    """

    def __init__(self, config: RSTNetConfig):
        super().__init__(config)
        self.model = RSTNetModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=config.output_bias)
        self.post_init()


__all__ = ["RSTNetForConditionalGeneration", "RSTNetModel", "RSTNetPreTrainedModel"]

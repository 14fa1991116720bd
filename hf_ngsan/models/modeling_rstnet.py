"""RSTNet: grid-augmented encoder, adaptive attention between visual tokens and language (Zhang et al. 2021)."""

import math
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import CROSS_ATTENTIONS, SELF_ATTENTIONS, AdaptiveAttention, MultiHeadAttention
from .captioning import CaptioningForConditionalGeneration, CaptioningModel
from .configuration_rstnet import RSTNetConfig
from .finished_beams import competing_finished_beams
from .geometry import GeometricBias, RelativeGeometryEmbedding, grid_boxes, sinusoidal_geometry
from .modeling_base import HubPreTrainedModel, refuse_unknown_keywords
from .modeling_rstnet_language_model import MaskedFeedForward, ResidualNorm, RSTNetLanguageModel
from .positions import WordPositions, current_mask, grid_positions
from .transformer import TransformerLayer, WordDecoder
from .visual_inputs import check_visual_boxes, check_visual_features
from .visualness import VisualnessMixin

if TYPE_CHECKING:  # names the file, so that saving with code copies it
    from .pipeline_image_to_text import ImageToTextPipeline  # noqa: F401

MIN_WEIGHT = 1e-6
"""Smallest geometric weight of a pair of cells before its logarithm, as in the authors' release: log 1e-6 = -13.8."""
VISUAL_INPUTS = ("visual_features", "visual_boxes", "attention_mask", "encoder_outputs")


class GridGeometry(nn.Module):
    """Geometric weights lambda of pairs of cells (eq. 4-6), as a bias of attention that all encoder layers share."""

    def __init__(self, config: RSTNetConfig):
        super().__init__()
        self.size_offset = float(config.grid_size_offset)
        self.channels = config.geometry_hidden_size
        self.is_logarithm = config.geometry_fusion == "log"
        self.embedding = None
        if config.geometry_embedding == "linear":
            self.embedding = RelativeGeometryEmbedding(self.channels, size_offset=self.size_offset)
        self.weights = GeometricBias(config.hidden_size, config.num_attention_heads, self.channels, ["content"])

    def forward(self, boxes: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """
        Args:
            boxes (`torch.FloatTensor` of shape `(batch_size or 1, num_regions, 4)`).
            states (`torch.FloatTensor` of shape `(batch_size, num_regions, hidden_size)`): for their dtype.

        Returns:
            `torch.FloatTensor` of shape `(batch_size or 1, num_heads, num_regions, num_regions)`.
        """
        if self.embedding is None:
            geometry = sinusoidal_geometry(boxes, self.channels, self.size_offset).to(states.dtype)
        else:
            geometry = self.embedding(boxes, states.dtype)
        weights = self.weights(states, geometry)
        return weights.clamp(min=MIN_WEIGHT).log() if self.is_logarithm else weights


class RSTNetEncoderLayer(TransformerLayer):
    """Self-attention with geometric weights (eq. 14 and 15) and feed-forward."""

    def __init__(self, config: RSTNetConfig):
        super().__init__()
        self.self_attn = MultiHeadAttention(config)
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
            placed,
            attention_mask=attention_mask,
            position_bias=geometric_bias,
            value_states=hidden_states,
            **kwargs,
        )
        return self.feed_forward(self.self_attn_norm(hidden_states, attended, inner=placed))


class RSTNetDecoderLayer(TransformerLayer):
    """Causal self-attention, cross-attention and feed-forward.

    Args:
        config ([`RSTNetConfig`]).
        layer_idx (`int`): position in the cache.
        is_adaptive (`bool`): whether cross-attention takes the language signal too.
    """

    def __init__(self, config: RSTNetConfig, layer_idx: int, is_adaptive: bool):
        super().__init__()
        self.self_attn = MultiHeadAttention(config, layer_idx, is_causal=True)
        self.self_attn_norm = ResidualNorm(config)
        self.is_adaptive = is_adaptive
        self.encoder_attn = (
            AdaptiveAttention(config, layer_idx) if is_adaptive else MultiHeadAttention(config, layer_idx)
        )
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
        key_counts: None = None,
        encoder_key_counts: None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        attended, _ = self.self_attn(hidden_states, attention_mask=attention_mask, cache=cache, **kwargs)
        hidden_states = self.self_attn_norm(hidden_states, attended, token_mask)
        placed = encoder_hidden_states if encoder_positions is None else encoder_hidden_states + encoder_positions
        if self.is_adaptive:
            further = {"language_signal": language_signal, "token_mask": encoder_token_mask}
        else:
            further = {"attention_mask": encoder_attention_mask}
        attended = self.encoder_attn(
            hidden_states,
            placed,
            value_states=encoder_hidden_states,
            cache=cache,
            **further,
            **kwargs,
        )[0]
        hidden_states = self.encoder_attn_norm(hidden_states, attended, token_mask)
        return self.feed_forward(hidden_states, token_mask)


class RSTNetPreTrainedModel(HubPreTrainedModel):
    config: RSTNetConfig
    main_input_name = "visual_features"
    input_modalities = ["image", "text"]
    _no_split_modules = ["RSTNetEncoderLayer", "RSTNetDecoderLayer", "RSTNetLanguageLayer"]

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Changes the number of words, those of the language model included."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        model: Any = self.base_model
        language_model = model.decoder.language_model
        if language_model is not None and language_model.config.vocab_size != embeddings.num_embeddings:
            language_model.resize_vocabulary(embeddings.num_embeddings)
        return embeddings


class RSTNetEncoder(RSTNetPreTrainedModel):
    """Encodes the cells of a grid, or regions with boxes, with the geometry of their pairs (section 3.1 and 3.3)."""

    _can_record_outputs = {
        "hidden_states": RSTNetEncoderLayer,
        "attentions": SELF_ATTENTIONS,
    }

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
        r"""
        Args:
            visual_features (`torch.FloatTensor` of shape `(batch_size, num_regions, visual_feature_size)`): of grid
                cells, row by row, or of regions with boxes.
            visual_boxes (`torch.FloatTensor` of shape `(batch_size, num_regions, 4)`, *optional*): ignored if the
                configuration names a `grid_size`, or has no geometry. Without boxes the tokens must be a square grid.
            attention_mask (`torch.Tensor` of shape `(batch_size, num_regions)`, *optional*): 1 = real, 0 = padding.

        Raises:
            ValueError: features of another dimension than the configuration's, boxes or a mask of another number, or
                visual tokens that are no such grid.
        """
        refuse_unknown_keywords(self, kwargs)
        check_visual_features(visual_features, attention_mask, self.config.visual_feature_size)
        hidden_states = self.dropout(torch.relu(self.input_proj(visual_features.to(self.dtype))))
        if self.input_norm is not None:
            hidden_states = self.input_norm(hidden_states)
        if attention_mask is not None:
            hidden_states = hidden_states * attention_mask[..., None].to(hidden_states.dtype)
        geometric_bias = None
        if self.geometry is not None:
            geometric_bias = self.geometry(self.boxes_of(hidden_states, visual_boxes, attention_mask), hidden_states)
            geometric_bias = geometric_bias.expand(hidden_states.shape[0], -1, -1, -1)
        bidirectional_mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=attention_mask
        )
        positions = positions_of_grid(self.config, hidden_states)
        for layer in self.layers:
            hidden_states = layer(hidden_states, geometric_bias, positions, attention_mask=bidirectional_mask, **kwargs)
        return BaseModelOutput(last_hidden_state=hidden_states)

    def boxes_of(
        self, states: torch.Tensor, boxes: torch.Tensor | None, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Returns boxes `(batch_size or 1, num_regions, 4)` of the visual tokens."""
        if self.config.grid_size is None and boxes is not None:
            check_visual_boxes(boxes, states, "")
            return boxes
        if (
            self.config.grid_size is None
            and attention_mask is not None
            and not torch.compiler.is_compiling()
            and not bool(attention_mask.all())
        ):
            raise ValueError(
                "visual_boxes are missing: some images have fewer visual tokens than others, so that these are no "
                "square grids of one size; give the boxes, or set grid_size in the configuration."
            )
        return grid_boxes(*grid_shape(self.config, states.shape[1]), device=states.device)[None]


def grid_shape(config: RSTNetConfig, number: int) -> tuple[int, int]:
    """Returns rows and columns of a grid of some number of visual tokens.

    Raises:
        ValueError: the grid is no square, or not the configuration's `grid_size`.
    """
    if config.grid_size is not None:
        rows, columns = config.grid_size
        if rows * columns != number:
            raise ValueError(
                f"There are {number} visual tokens, but the model takes a grid of {rows} x {columns} cells (grid_size)."
            )
        return rows, columns
    side = int(math.sqrt(number))  # which torch.compile can trace, unlike math.isqrt, where sizes are dynamic
    if side * side != number:
        raise ValueError(
            f"There are {number} visual tokens, which are no square grid; give visual_boxes, or set grid_size in the "
            "configuration."
        )
    return side, side


def positions_of_grid(config: RSTNetConfig, states: torch.Tensor) -> torch.Tensor | None:
    """Returns the codes `(num_regions, hidden_size)` of the cells; `None` where the model has none."""
    if not config.grid_position_embedding:
        return None
    shape = grid_shape(config, states.shape[1])
    return grid_positions(*shape, config.hidden_size, device=states.device).to(states.dtype)


class RSTNetDecoder(RSTNetPreTrainedModel, WordDecoder):
    """Plain decoder layers and one adaptive layer, with the frozen language model (section 3.3).

    The keys and values of the language model lie in the cache of the decoder, behind those of its layers, so that the
    language signal of each word is computed once and beams are reordered together.
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
        self.language_model = None
        if config.adaptive_attention:
            language_model_config: Any = config.language_model_config
            self.language_model = RSTNetLanguageModel(language_model_config, first_layer=config.num_hidden_layers)
        self.post_init()
        if config.pretrained_language_model and self.device.type != "meta":
            self.load_pretrained_language_model()
        self.train(self.training)

    def make_layer(self, config: Any, layer_idx: int) -> nn.Module:
        return RSTNetDecoderLayer(config, layer_idx, is_adaptive=layer_idx == config.plain_decoder_layers)

    def load_pretrained_language_model(self) -> None:
        """Loads the language model's weights from the folder or Hub repository that the configuration names.

        Raises:
            ValueError: weights are missing there, or have another shape.
        """
        source: Any = self.config.pretrained_language_model
        found: Any = RSTNetLanguageModel.from_pretrained(source, output_loading_info=True)
        loaded, report = found
        language_model: Any = self.language_model
        shapes = {name: weight.shape for name, weight in language_model.state_dict().items()}
        faults = {*report["missing_keys"]}
        faults |= {name for name, weight in loaded.state_dict().items() if weight.shape != shapes.get(name)}
        if faults:
            raise ValueError(
                f"{source} lacks {len(faults)} weights of the language model, or has other shapes of them, "
                f"{min(faults)} among them; give the folder or the name of one with this language_model_config."
            )
        language_model.load_state_dict(loaded.state_dict())

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.language_model is not None:  # also after loading, which gives every weight a gradient
            self.language_model.eval().requires_grad_(False)
        return self

    def embed(
        self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        positions = self.positions(position_ids, attention_mask, inputs_embeds.dtype)
        scale = self.config.hidden_size**0.5 if self.config.scale_embeddings else 1.0
        return self.dropout(inputs_embeds * scale + positions)

    def further_layer_inputs(self, **given: Any) -> dict[str, Any]:
        signal, input_ids = None, given["input_ids"]
        if self.language_model is not None:
            if input_ids is None:
                raise ValueError(
                    "The language model reads words: give decoder_input_ids, not decoder_inputs_embeds, to a captioner "
                    "with adaptive_attention."
                )
            words = {name: given[name] for name in ("attention_mask", "position_ids", "cache")}
            with torch.no_grad():
                signal = self.language_model(input_ids, **words, with_logits=False).last_hidden_state
        length = given["position_ids"].shape[-1]
        return {
            "language_signal": signal,
            "token_mask": current_mask(given["attention_mask"], length),
            "encoder_token_mask": given["encoder_attention_mask"],
            "encoder_positions": positions_of_grid(self.config, given["encoder_hidden_states"]),
        }


class RSTNetModel(RSTNetPreTrainedModel, CaptioningModel):
    """RSTNet without its word classifier."""

    def __init__(self, config: RSTNetConfig):
        super().__init__(config)
        self.encoder = RSTNetEncoder(config)
        self.decoder = RSTNetDecoder(config)
        self.post_init()


class RSTNetForConditionalGeneration(RSTNetPreTrainedModel, VisualnessMixin, CaptioningForConditionalGeneration):
    r"""RSTNet, or one of its ablations; see [`RSTNetConfig`] for which is which.

    With eager attention the last of `cross_attentions` belongs to the adaptive layer: `(batch_size, num_heads, length,
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

    @torch.no_grad()
    def generate(
        self, inputs: torch.Tensor | None = None, *args: Any, return_visualness: bool = False, **kwargs: Any
    ) -> Any:
        """Captions images; see [`~captioning.CaptioningForConditionalGeneration.generate`].

        Args:
            inputs, args, kwargs: as there.
            return_visualness (`bool`, defaults to `False`): with `return_dict_in_generate=True` the output also has
                `visualness`, of the shape of its `sequences` (see [`~visualness.VisualnessMixin.word_visualness`]).

        Raises:
            ValueError: the captioner has no visualness, or `return_dict_in_generate` is not True.
        """
        settings = kwargs.get("generation_config") or self.generation_config
        inputs = self.replace_pixels(inputs, kwargs)
        if return_visualness:
            if not kwargs.get("return_dict_in_generate", settings.return_dict_in_generate):
                raise ValueError("return_visualness=True needs return_dict_in_generate=True.")
            if not self.config.adaptive_attention:
                raise ValueError("The captioner has no visualness, as its configuration has adaptive_attention=False.")
        num_beams = kwargs.get("num_beams", settings.num_beams) or 1
        if self.config.finished_beams == "compete" and num_beams > 1:
            kwargs |= competing_finished_beams(kwargs, self.generation_config)
        visual = {name: kwargs[name] for name in VISUAL_INPUTS if name in kwargs}
        if inputs is not None:
            visual["visual_features"] = inputs
        if visual.get("encoder_outputs") is not None:
            visual["encoder_outputs"] = (visual["encoder_outputs"][0],)  # which generate() repeats for beams, in place
        output = super().generate(inputs, *args, **kwargs)
        if return_visualness:
            output["visualness"] = self.word_visualness(visual, output.sequences)
        return output


__all__ = ["RSTNetForConditionalGeneration", "RSTNetModel", "RSTNetPreTrainedModel"]

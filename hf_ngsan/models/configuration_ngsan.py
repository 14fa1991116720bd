"""Configuration of the NG-SAN family of captioners."""

from typing import Any

from .configuration_hub import CaptionerConfig, strict
from .parts import *  # noqa: F403  # transformers copies what a checkpoint's parts.py names


@strict
class NGSANConfig(CaptionerConfig):
    r"""Configuration of SAN, N-SAN, G-SAN and NG-SAN (Guo et al. 2020). The defaults are the paper's NG-SAN.

    | model | `query_norm` | `geometric_bias` |
    | --- | --- | --- |
    | SAN | `None` | `[]` |
    | N-SAN | `"instance"` | `[]` |
    | G-SAN | `None` | `["query"]` |
    | NG-SAN | `"instance"` | `["query"]` |

    Args:
        vocab_size (`int`, defaults to 9491): words and special tokens (the paper's 9,487 words and 4 special tokens).
        visual_feature_size (`int`, *optional*): feature size of a region; by default the vision encoder's, or 2048.
        hidden_size (`int`, defaults to 512): dimension of encoder and decoder.
        num_hidden_layers (`int`, defaults to 4): layers L of the encoder, and of the decoder.
        num_attention_heads (`int`, defaults to 8): heads h; must divide `hidden_size`.
        intermediate_size (`int`, defaults to 2048): inner dimension of the feed-forward blocks.
        dropout (`float`, defaults to 0.1): on embeddings, sublayer outputs and inside the feed-forward blocks.
        attention_dropout (`float`, defaults to 0.1): on attention weights.
        max_position_embeddings (`int`, defaults to 512): maximum length of captions.
        query_norm, key_norm (`str`, *optional*, default to `"instance"` and `None`): normalization of the encoder's
            queries and keys: `None`, `"instance"` (eq. 6), `"layer"` or `"batch"` (tables 2 and 3).
        norm_affine (`bool`, defaults to `False`): whether these normalizations learn scale and shift (table 2).
        geometric_bias (`list[str]`, defaults to `["query"]`): any of `"content"` (eq. 11), `"query"` (eq. 12) and
            `"key"` (eq. 13), summed; `[]` for none (table 4).
        geometry_hidden_size (`int`, defaults to 64): geometric channels d_g of each head. With 80 the model has the
            41.5 M parameters of the paper, with 64 it has 41.25 M.
        geometry_features (`str`, defaults to `"unsigned"`): `"unsigned"` (eq. 8, which ignores left and right) or
            `"signed"` (our extension, see [`geometry.relative_geometry`]).
        absolute_geometry (`bool`, defaults to `False`): whether to add sinusoids of each box to the encoder's input
            (the "absolute" row of table 4); `hidden_size` must then be a multiple of 8.
        temporal_positions (`bool`, defaults to `False`): whether to add sinusoids of each token's position to the
            encoder's input, for frames of a video; the paper's encoder has no positions.
        initializer_range (`float`, defaults to 0.02): standard deviation of the initial weights.
        use_cache (`bool`, defaults to `True`): whether decoding caches keys and values.
        pad_token_id, bos_token_id, eos_token_id, decoder_start_token_id (`int`): 0, 1, 2 and 1.
        tie_word_embeddings (`bool`, defaults to `False`): whether input and output embeddings are one matrix.
        vision_config (`dict` or [`VisionConfig`], *optional*): a vision encoder; `None` for a captioner of features.
        features_provenance (`dict`, *optional*): provenance of the training features; the model rejects others.
    """

    model_type = "ngsan"
    remote_classes = {
        "AutoConfig": "configuration_ngsan.NGSANConfig",
        "AutoModel": "modeling_ngsan.NGSANModel",
        "AutoModelForImageTextToText": "modeling_ngsan.NGSANForConditionalGeneration",
        "AutoProcessor": "processing_ngsan.NGSANProcessor",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }
    field_choices = {
        **CaptionerConfig.field_choices,
        "query_norm": (None, "instance", "layer", "batch"),
        "key_norm": (None, "instance", "layer", "batch"),
        "geometric_bias": ("content", "query", "key"),
        "geometry_features": ("unsigned", "signed"),
    }

    num_hidden_layers: int = 4
    query_norm: str | None = "instance"
    key_norm: str | None = None
    norm_affine: bool = False
    geometric_bias: list[str] | tuple[str, ...] = ("query",)
    geometry_hidden_size: int = 64
    geometry_features: str = "unsigned"
    absolute_geometry: bool = False
    temporal_positions: bool = False

    @property
    def order_of_tokens_counts(self) -> bool:  # type: ignore[override]
        return self.temporal_positions

    @property
    def needs_boxes(self) -> bool:  # type: ignore[override]
        return bool(self.geometric_bias) or self.absolute_geometry

    def __post_init__(self, **kwargs: Any) -> None:
        self.geometric_bias = list(self.geometric_bias)
        super().__post_init__(**kwargs)


__all__ = ["NGSANConfig"]

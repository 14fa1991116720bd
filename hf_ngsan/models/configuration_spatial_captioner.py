"""Configuration of the spatial captioner."""

from dataclasses import field

from .configuration_hub import CaptionerConfig, PreTrainedConfig, strict
from .parts import *  # noqa: F403  # transformers copies what a checkpoint's parts.py names


def vgg_11_grid() -> dict:
    """Describes the paper's vision encoder: frozen VGG-11 up to its last pooling, 14 x 14 cells (section 2.1)."""
    return {"kind": "grid", "backbone_config": {"model_type": "ngsan_vgg"}, "frozen": True}


@strict
class SpatialCaptionerConfig(CaptionerConfig):
    r"""Configuration of the spatial captioner (Springenberg et al. 2018). The defaults are the paper's.

    Args:
        vocab_size (`int`, defaults to 9491): words and special tokens; the paper does not specify its vocabulary.
        vision_config (`dict` or `VisionConfig`, *optional*): the vision encoder; defaults to the paper's frozen VGG-11.
            `None` for a captioner of visual features.
        visual_feature_size (`int`, *optional*): feature size of a grid cell; by default the vision encoder's, or 512.
            If it differs from `hidden_size`, 512 in the paper, a linear layer projects the features (inferred).
        encoder_layers (`int`, defaults to 2): self-attention layers over the grid.
        decoder_layers (`int`, defaults to 4): layers over the words; `num_hidden_layers` is an alias.
        intermediate_size (`int`, defaults to 1024): inner dimension d_hidden of the feed-forward blocks.
        dropout (`float`, defaults to 0.1): on caption embeddings and image features, after positions are added to them
            (where exactly is inferred).
        residual_dropout (`float`, defaults to 0.0): on sublayer outputs and in feed-forward blocks; the paper has none.
        attention_temperature (`str`, defaults to `"key_length"`): divisor of attention scores: `"key_length"`:
            sqrt(d_len + d_attn), eq. 2, with d_len the number of keys that a query may attend to; `"head_dim"`:
            sqrt(d_attn), as in Vaswani et al. 2017.
        position_embedding (`str`, defaults to `"sequence"`): sinusoids that are added to image features: `"sequence"`:
            of the index of a cell, counted row by row (inferred); `"boxes"`: of the position and size of its box, our
            extension, which also works for regions; `hidden_size` must then be a multiple of 8.
        attention_bias (`bool`, defaults to `False`): whether the projections of attention have biases; unlike eq. 4,
            eq. 1 and 3 have none.
        others: see [`NGSANConfig`] for `hidden_size`, `num_attention_heads`, `initializer_range`, `use_cache`, tokens,
            `tie_word_embeddings`, `features_provenance`.
    """

    model_type = "spatial_captioner"
    default_feature_size = 512
    attribute_map = {"num_hidden_layers": "decoder_layers"}
    remote_classes = {
        "AutoConfig": "configuration_spatial_captioner.SpatialCaptionerConfig",
        "AutoModel": "modeling_spatial_captioner.SpatialCaptionerModel",
        "AutoModelForImageTextToText": "modeling_spatial_captioner.SpatialCaptionerForConditionalGeneration",
        "AutoProcessor": "processing_spatial_captioner.SpatialCaptionerProcessor",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }
    field_choices = {
        **CaptionerConfig.field_choices,
        "attention_temperature": ("key_length", "head_dim"),
        "position_embedding": ("sequence", "boxes"),
    }

    vision_config: PreTrainedConfig | dict | None = field(default_factory=vgg_11_grid)
    encoder_layers: int = 2
    decoder_layers: int = 4
    intermediate_size: int = 1024
    residual_dropout: float | int = 0.0
    attention_temperature: str = "key_length"
    position_embedding: str = "sequence"
    attention_bias: bool = False

    @property
    def order_of_tokens_counts(self) -> bool:  # type: ignore[override]
        """Whether the order of the visual tokens defines their positions."""
        return self.position_embedding == "sequence"

    @property
    def reads_boxes(self) -> bool:
        return self.position_embedding == "boxes"


__all__ = ["SpatialCaptionerConfig"]

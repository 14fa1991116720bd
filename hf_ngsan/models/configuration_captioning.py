"""Base configuration of captioners: sizes, dropout rates, special tokens and the vision encoder, if any."""

from .configuration_hub import ConfigWithVision

IMAGE_TO_TEXT_PIPELINE = {
    task: {
        "impl": "pipeline_image_to_text.ImageToTextPipeline",
        "pt": ["AutoModelForImageTextToText"],
        "type": "multimodal",
    }
    for task in ("image-to-text", "image-text-to-text")
}


class CaptionerConfig(ConfigWithVision):
    """Sizes, dropout rates and special tokens of a captioner, and its vision encoder, if any.

    A subclass documents the fields and may change their defaults. It may add the fields `attention_bias` and
    `residual_dropout`, which layers read.
    """

    attribute_map = {"residual_dropout": "dropout"}
    attention_bias = True
    keys_to_ignore_at_inference = ["cache"]
    remote_pipelines = IMAGE_TO_TEXT_PIPELINE
    field_choices = {"is_encoder_decoder": (True,)}

    vocab_size: int = 9491
    hidden_size: int = 512
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    max_position_embeddings: int = 512
    initializer_range: float | int = 0.02
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1
    tie_word_embeddings: bool = False
    features_provenance: dict | None = None

    order_of_tokens_counts = False  # whether the order of visual tokens defines their positions, as in a grid
    needs_boxes = False  # whether visual features without boxes are refused
    takes_square_grids = False  # whether features without boxes are the cells of a square grid

    @property
    def reads_boxes(self) -> bool:
        """Whether the boxes of visual features affect captions."""
        return self.needs_boxes

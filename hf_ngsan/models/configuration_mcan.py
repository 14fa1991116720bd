"""Configuration of MCAN, which answers questions about images, with or without geometry."""

from typing import Any, Self

from .configuration_hub import ConfigWithVision, strict
from .parts import *  # noqa: F403  # transformers copies what a checkpoint's parts.py names

LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "pooled_size": 2048}
"""Differences of the large model of the authors' release from the small one."""


@strict
class MCANConfig(ConfigWithVision):
    r"""Configuration of MCAN (Yu et al. 2019), the encoder-decoder. The defaults are the small model of the release.

    With `geometric_bias` the self-attention of the image, not of the question, becomes geometry-aware (section 6.3 of
    Guo et al. 2020).

    | model | `geometric_bias` | `geometry_features` |
    | --- | --- | --- |
    | MCAN | `[]` | |
    | MCAN + GSA | `["query"]` | `"unsigned"` |
    | MCAN + signed GSA (our extension) | `["query"]` | `"signed"` |

    Args:
        vocab_size (`int`, defaults to 20573): words of questions, including padding and the unknown word.
        word_embedding_size (`int`, defaults to 300): dimension of a word vector.
        visual_feature_size (`int`, *optional*): feature size of a region; by default the vision encoder's, or 2048.
        num_hidden_layers (`int`, defaults to 6): layers L of the encoder (question), and of the decoder (image).
        reduction_hidden_size (`int`, defaults to 512): hidden units of the attention that reduces words or regions.
        num_glimpses (`int`, defaults to 1): attention maps of a reduction; their weighted sums are concatenated.
        pooled_size (`int`, defaults to 1024): dimension of the reduced vectors and of the fused one.
        geometric_bias (`list[str]`, defaults to `[]`): any of `"content"` (eq. 11), `"query"` (eq. 12) and `"key"`
            (eq. 13 of Guo et al. 2020), summed, in the self-attention of the image; `[]` for none.
        norm_eps (`float`, defaults to 1e-6): added to the standard deviation in the normalizations.
        loss_reduction (`str`, defaults to `"mean"`): reduction over questions of the binary cross-entropy, which is
            summed over answers: `"mean"`, or `"sum"` as in the authors' release.
        initializer_range (`float`, defaults to 1.0): standard deviation of the initial word vectors.
        pad_token_id (`int`, defaults to 0).
        others: see [`NGSANConfig`] for `hidden_size`, `num_attention_heads`, `intermediate_size`, `dropout`,
            `attention_dropout`, `geometry_hidden_size`, `geometry_features`, `vision_config`, `features_provenance`.
        num_labels, id2label, label2id: the answers, as for every classifier of transformers.
    """

    model_type = "mcan"
    attribute_map = {"residual_dropout": "dropout"}
    attention_bias = True
    remote_pipelines = {
        "visual-question-answering": {
            "impl": "pipeline_visual_question_answering.VisualQuestionAnsweringPipeline",
            "pt": ["AutoModelForVisualQuestionAnswering"],
            "type": "multimodal",
        }
    }
    remote_classes = {
        "AutoConfig": "configuration_mcan.MCANConfig",
        "AutoModel": "modeling_mcan.MCANModel",
        "AutoModelForVisualQuestionAnswering": "modeling_mcan.MCANForVisualQuestionAnswering",
        "AutoProcessor": "processing_mcan.MCANProcessor",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }
    field_choices = {
        "loss_reduction": ("mean", "sum"),
        "geometric_bias": ("content", "query", "key"),
        "geometry_features": ("unsigned", "signed"),
    }

    vocab_size: int = 20573
    word_embedding_size: int = 300
    hidden_size: int = 512
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    reduction_hidden_size: int = 512
    num_glimpses: int = 1
    pooled_size: int = 1024
    geometric_bias: list[str] | tuple[str, ...] = ()
    geometry_hidden_size: int = 64
    geometry_features: str = "unsigned"
    norm_eps: float | int = 1e-6
    loss_reduction: str = "mean"
    initializer_range: float | int = 1.0
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    tie_word_embeddings: bool = False
    features_provenance: dict | None = None

    @classmethod
    def small(cls, **fields: Any) -> Self:
        """Returns the configuration of the small model of the authors' release, with `fields` changed."""
        return cls(**fields)

    @classmethod
    def large(cls, **fields: Any) -> Self:
        """Returns the configuration of the large model of the authors' release, with `fields` changed."""
        return cls(**{**LARGE, **fields})

    @property
    def needs_boxes(self) -> bool:
        """Whether the model needs `visual_boxes`."""
        return bool(self.geometric_bias)

    def __post_init__(self, **kwargs: Any) -> None:
        self.geometric_bias = list(self.geometric_bias)
        super().__post_init__(**kwargs)


__all__ = ["MCANConfig"]

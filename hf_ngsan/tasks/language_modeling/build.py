"""New language models for a training config, with words aligned with the pieces of a text encoder."""

from collections.abc import Sequence
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoTokenizer, PreTrainedTokenizerBase, ProcessorMixin

from ...data.vocabulary import build_tokenizer
from ...io.messages import one_sentence
from ...loading.models import quiet_loading
from ...models.modeling_rstnet_language_model import RSTNetLanguageModel
from ...models.text_encoders import find_text_encoder
from ...registry import model_class, processor_class
from ...training.recipe import RecipeError
from ..new_models import check_field_names, config_class_of, trained_model
from .recipe import LanguageModelingRecipe

SPECIAL_PIECES = {"pad_token": "pad", "bos_token": "cls", "eos_token": "sep", "unk_token": "unk"}
"""Special tokens of captions, and the equivalent ones of a text encoder."""


def new_language_model(recipe: LanguageModelingRecipe, captions: Sequence[str]) -> tuple[Any, ProcessorMixin]:
    """Makes the language model of a training config, with the vocabulary of the training captions.

    Words are aligned with the word pieces of a pretrained text encoder; a new text encoder has the words as pieces.

    Raises:
        RecipeError: unknown model type or fields, fields that do not fit together, or a text encoder that cannot be
            used.
    """
    fields = dict(recipe.model)
    if "init_from" in fields:
        return trained_model(fields, "language_modeling")
    model_type = fields.pop("model_type")
    kind: Any = config_class_of(model_type, "language_modeling")
    check_field_names(fields, kind)
    tokenizer = build_tokenizer(captions, min_count=recipe.data.min_word_count)
    encoder = fields.get("text_encoder_config")
    if isinstance(encoder, dict) and not fields.get("pretrained_text_encoder"):
        fields["text_encoder_config"] = {"vocab_size": len(tokenizer), **encoder}
    tokens = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    try:
        with quiet_loading():
            config = kind(**fields, **tokens, vocab_size=len(tokenizer))
            model = model_class(model_type, "AutoModel")(config)
            if config.language_tokenization == "word_pieces":
                align(model, tokenizer)
    except (ValueError, TypeError, OSError, StrictDataclassError) as error:
        raise RecipeError(f"section model: {one_sentence(error)}") from error
    return model, processor_class(model_type)(tokenizer=tokenizer)


def align(model: RSTNetLanguageModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Aligns the words of a tokenizer with the word pieces of a language model's text encoder.

    Raises:
        ValueError: a new text encoder has fewer embeddings than there are words.
        OSError: there is no tokenizer where the text encoder comes from.
    """
    source: Any = model.config.pretrained_text_encoder
    vocabulary = tokenizer.get_vocab()
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    if source is None:
        encoder: Any = model.config.text_encoder_config
        if encoder.vocab_size < len(words):
            raise ValueError(
                f"text_encoder_config has a vocab_size of {encoder.vocab_size} for {len(words)} words; leave it out."
            )
        return
    pieces: Any = AutoTokenizer.from_pretrained(find_text_encoder(source), trust_remote_code=False)  # nosec B615  # the user's choice
    special = {getattr(tokenizer, name): getattr(pieces, f"{other}_token_id") for name, other in SPECIAL_PIECES.items()}

    def pieces_of(word: str) -> list[int]:
        if special.get(word) is not None:
            return [special[word]]
        # with a space, as within a caption: byte-level tokenizers split the first word of a text differently
        return pieces(f" {word}", add_special_tokens=False)["input_ids"] or [pieces.unk_token_id]

    model.align_vocabulary(words, pieces_of)

"""New translators for a training config, or trained ones to fine-tune (`model.init_from`)."""

from itertools import chain

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...data.parallel_text import SIDES
from ...data.vocabulary import build_subword_tokenizer
from ..new_models import (
    check_field_names,
    config_class_of,
    new_config,
    new_model,
    set_generation_defaults,
    trained_model,
)
from .recipe import TranslationRecipe


def new_translator(recipe: TranslationRecipe, rows: Dataset) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Makes the translator that a recipe describes, with subwords of the training pairs, or loads a trained one.

    Args:
        recipe: sections `model`, `data` and `evaluation` (how it generates by default) are used.
        rows: the training pairs.

    Returns:
        The model, on the CPU, and its tokenizer.

    Raises:
        RecipeError: unknown model type or fields, or fields that do not fit together.
    """
    fields, data = dict(recipe.model), recipe.data
    if "init_from" in fields:
        model, tokenizer = trained_model(fields, "translation")
    else:
        kind = config_class_of(fields.pop("model_type"), "translation")
        check_field_names(fields, kind)
        tokenizer = build_subword_tokenizer(
            chain.from_iterable(rows[side] for side in SIDES),
            vocab_size=data.vocab_size,
            max_length=data.max_length,
        )
        tokens = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        tokens |= {"decoder_start_token_id": tokenizer.bos_token_id, "vocab_size": len(tokenizer)}
        model = new_model(new_config(kind, fields, **tokens), "AutoModelForSeq2SeqLM")
    set_generation_defaults(model, recipe.evaluation)
    return model, tokenizer

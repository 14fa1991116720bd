"""Translators made new from a training config, or from a trained one that is to be trained further."""

from itertools import chain
from typing import Any

from datasets import Dataset
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...auto import config_class, model_class
from ...data.parallel_text import SIDES
from ...data.subwords import build_subword_tokenizer
from ...ground.messages import one_sentence
from ...loading.limits import refuse_too_large
from ...loading.models import load_model
from ...models.configuration_hub import ConfigurationError
from ...training.recipe import RecipeError
from ..new_models import check_field_names
from .recipe import TranslationRecipe


def new_translator(recipe: TranslationRecipe, rows: Dataset) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Makes the translator that a recipe describes, with subwords of the training pairs, or loads a trained one.

    Args:
        recipe: sections `model`, `data` and `evaluation` (how it generates by default) are used.
        rows: the training pairs.

    Returns:
        The model, on the CPU, and its tokenizer.

    Raises:
        RecipeError: unknown fields, or fields that do not fit together.
    """
    fields, data = dict(recipe.model), recipe.data
    try:
        if "init_from" in fields:
            folder = fields.pop("init_from")
            fields.pop("model_type", None)
            model, tokenizer = load_model(folder, "translation", **fields)
        else:
            model_type = fields.pop("model_type")
            kind: Any = config_class(model_type)
            check_field_names(fields, kind)
            tokenizer = build_subword_tokenizer(
                chain.from_iterable(rows[side] for side in SIDES),
                vocab_size=data.vocab_size,
                max_length=data.max_length,
            )
            tokens = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
            config = kind(**fields, **tokens, decoder_start_token_id=tokenizer.bos_token_id, vocab_size=len(tokenizer))
            translator = model_class(model_type, "AutoModelForSeq2SeqLM")
            refuse_too_large(lambda: translator(config))
            model = translator(config)
    except (ConfigurationError, StrictDataclassError, TypeError) as error:
        raise RecipeError(f"section model: {one_sentence(error)}") from error
    defaults: Any = model.generation_config
    defaults.num_beams = recipe.evaluation.num_beams
    defaults.max_new_tokens = recipe.evaluation.max_new_tokens
    defaults.length_penalty = recipe.evaluation.length_penalty if recipe.evaluation.num_beams > 1 else None
    return model, tokenizer

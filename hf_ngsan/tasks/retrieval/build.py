"""New dual encoders for a training config, or trained ones to fine-tune (`model.init_from`)."""

from collections.abc import Iterable
from dataclasses import asdict

from tokenizers import processors
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin
from transformers.image_utils import SizeDict

from ...data import build_tokenizer
from ...io.messages import one_sentence
from ...models.text_encoders import find_text_encoder
from ...training.recipe import RecipeError
from ..new_models import (
    FOLLOWS_FROM_DATA,
    check_field_names,
    config_class_of,
    new_config,
    new_model,
    new_processor,
    set_feature_size,
    trained_guest,
    trained_model,
)
from ..word_vectors import fill_word_vectors
from .recipe import RetrievalRecipe

ONLY_OURS = (
    "data.min_word_count",
    "data.max_caption_length",
    "data.image_size",
    "data.word_vectors",
    "data.dictionary",
    "training.stage",
    "training.train_word_vectors",
    "training.text_learning_rate",
)
"""Settings that dual encoders of transformers do not have."""


def new_dual_encoder(
    recipe: RetrievalRecipe, captions: Iterable[str], visual_feature_size: int | None = None
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Makes the model and processor of a training config.

    With `model.init_from` both come from a trained dual encoder, its vocabulary included, and the other fields of the
    section change its configuration. A new one has the vocabulary of the training captions or, with
    `model.text_pretrained`, that of the text encoder.

    Args:
        recipe: sections `model`, `data` and `contrastive` are used.
        captions: every training caption.
        visual_feature_size: dimension D of the data's features, for a model without a vision encoder.

    Returns:
        The model, on the CPU, and its processor.

    Raises:
        RecipeError: unknown model type or field, a field of the wrong type, or features of another dimension.
        DataError: the file of word vectors cannot be used.
    """
    guest = trained_guest(recipe, "retrieval", ONLY_OURS)
    if guest is not None:
        return guest
    fields, data, of_loss = dict(recipe.model), recipe.data, asdict(recipe.contrastive)
    follows = {**FOLLOWS_FROM_DATA, **{name: f"contrastive.{name}" for name in of_loss}}
    text = fields.get("text_config")
    for key in ("vocab_size", "pad_token_id"):
        if isinstance(text, dict) and key in text:
            raise RecipeError(f"model.text_config.{key} follows from the training captions; leave it out.")
    if "init_from" in fields:
        model, processor = trained_model(fields, "retrieval", follows, **of_loss)
        if data.image_size is not None and processor.image_processor is not None:
            processor.image_processor.size = SizeDict(height=data.image_size, width=data.image_size)
        return model, processor
    kind = config_class_of(fields.pop("model_type"), "retrieval")
    check_field_names(fields, kind, follows)
    set_feature_size(fields, kind, visual_feature_size, data.spec)
    tokenizer = new_tokenizer(fields, recipe, captions)
    model = new_model(new_config(kind, fields, **of_loss), "AutoModel")
    processor = new_processor(model, tokenizer, data.image_size)
    if data.word_vectors is not None:
        size_key = "model.text_config.word_embedding_size"
        fill_word_vectors(model, tokenizer, data.word_vectors, data.dictionary, size_key)
    return model, processor


def new_tokenizer(fields: dict, recipe: RetrievalRecipe, captions: Iterable[str]) -> PreTrainedTokenizerBase:
    """Returns the tokenizer of the text encoder, or one of the captions' words, with its size set in `text_config`."""
    pretrained = fields.get("text_pretrained")
    if pretrained is not None:
        try:
            tokenizer = AutoTokenizer.from_pretrained(find_text_encoder(pretrained), trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise RecipeError(
                f"model.text_pretrained is {pretrained}, whose tokenizer cannot be loaded ({one_sentence(error)}); "
                "give the folder of an encoder of transformers or its name on the Hub."
            ) from error
        # texts are cut only where that is asked for, whatever was saved with the tokenizer
        tokenizer.backend_tokenizer.no_truncation()
        for setting in ("max_length", "stride", "truncation_strategy"):
            tokenizer.init_kwargs.pop(setting, None)
        return tokenizer
    tokenizer = build_tokenizer(captions, min_count=recipe.data.min_word_count)
    words_only = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    tokenizer.backend_tokenizer.post_processor = words_only
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    fields["text_config"] = {**(fields.get("text_config") or {}), **sizes}
    return tokenizer

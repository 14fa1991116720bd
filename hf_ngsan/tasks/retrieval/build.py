"""Dual encoders made new from a training config, or from a trained one that is to be trained further."""

import logging
from collections.abc import Iterable
from dataclasses import asdict
from dataclasses import fields as dataclass_fields
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from tokenizers import processors
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin
from transformers.image_utils import SizeDict

from ...auto import config_class, model_class, processor_class
from ...data import build_tokenizer
from ...ground.messages import one_sentence
from ...loading.limits import refuse_too_large
from ...loading.models import load_config, load_model
from ...models.configuration_hub import ConfigurationError
from ...models.text_encoders import find_text_encoder
from ...training.recipe import RecipeError, suggestion
from ..new_models import (
    check_configured_feature_size,
    check_image_size,
    config_fields,
    new_image_processor,
    usable_backbone,
)
from ..word_vectors import fill_word_vectors
from .recipe import RetrievalContrastiveSettings, RetrievalRecipe

logger = logging.getLogger(__name__)


def new_dual_encoder(
    recipe: RetrievalRecipe, captions: Iterable[str], visual_feature_size: int | None = None
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Makes the model and processor that a training config describes.

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
        RecipeError: unknown field, a field of the wrong type, or features of another dimension.
        DataError: the file of word vectors cannot be used.
    """
    fields = dict(recipe.model)
    try:
        if "init_from" in fields:
            return fine_tuned_dual_encoder(fields, recipe)
        return fresh_dual_encoder(fields, recipe, captions, visual_feature_size)
    except ConfigurationError as error:
        raise RecipeError(f"section model: {error}") from error


def fine_tuned_dual_encoder(fields: dict, recipe: RetrievalRecipe) -> tuple[PreTrainedModel, ProcessorMixin]:
    folder = fields.pop("init_from")
    config = load_config(folder, "retrieval")
    if fields.pop("model_type", config.model_type) != config.model_type:
        raise RecipeError(f"model.init_from: {folder} is a {config.model_type}; set model.model_type accordingly.")
    check_field_names(fields, type(config))
    model, processor = load_model(folder, "retrieval", **fields, **losses(recipe))
    if recipe.data.image_size is not None and processor.image_processor is not None:
        processor.image_processor.size = SizeDict(height=recipe.data.image_size, width=recipe.data.image_size)
    return model, processor


def fresh_dual_encoder(
    fields: dict, recipe: RetrievalRecipe, captions: Iterable[str], visual_feature_size: int | None
) -> tuple[PreTrainedModel, ProcessorMixin]:
    kind: Any = config_class(fields.pop("model_type"))
    check_field_names(fields, kind)
    has_vision = (fields["vision_config"] if "vision_config" in fields else kind().vision_config) is not None
    if visual_feature_size is not None and not has_vision:
        check_configured_feature_size(fields.get("visual_feature_size"), visual_feature_size, recipe.data.spec)
        fields["visual_feature_size"] = visual_feature_size
    tokenizer = new_tokenizer(fields, recipe, captions)
    try:
        config = kind(**fields, **losses(recipe))
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise RecipeError(f"section model: {one_sentence(error)}") from error
    dual_encoder: Any = model_class(config.model_type, "AutoModel")
    with usable_backbone(config.vision_config):
        refuse_too_large(lambda: dual_encoder(config))
        model = dual_encoder(config)
    image_processor = None
    if model.vision is not None:
        image_processor = new_image_processor(model.vision, recipe.data.image_size)
        check_image_size(model.vision, image_processor)
    if recipe.data.word_vectors is not None:
        size_key = "model.text_config.word_embedding_size"
        fill_word_vectors(model, tokenizer, recipe.data.word_vectors, recipe.data.dictionary, size_key)
    return model, processor_class(config.model_type)(image_processor=image_processor, tokenizer=tokenizer)


def losses(recipe: RetrievalRecipe) -> dict[str, Any]:
    """Returns the fields of the configuration that say how `forward(..., return_loss=True)` computes the loss."""
    return asdict(recipe.contrastive)


def check_field_names(fields: dict, kind: Any) -> None:
    """Raises a RecipeError for a key of section `model` that is no field of its configuration, or follows from data."""
    text = fields.get("text_config") or {}
    if not isinstance(text, dict):
        raise RecipeError(f"model.text_config must be a mapping of keys to values or null, not {text!r}.")
    for key in ("vocab_size", "pad_token_id"):
        if key in text:
            raise RecipeError(f"model.text_config.{key} follows from the training captions; leave it out.")
    valid = config_fields(kind)
    of_losses = {entry.name for entry in dataclass_fields(RetrievalContrastiveSettings)}
    for name in fields:
        if name in of_losses:
            raise RecipeError(f"model.{name} follows from section contrastive; set contrastive.{name}.")
        if name == "features_provenance":
            raise RecipeError(f"model.{name} follows from the features that are trained on; leave it out.")
        if name not in valid:
            raise RecipeError(f"unknown key model.{name}{suggestion(name, sorted(valid), 'model')}")


def new_tokenizer(fields: dict, recipe: RetrievalRecipe, captions: Iterable[str]) -> PreTrainedTokenizerBase:
    """Returns the tokenizer of the text encoder, or one of the captions' words, whose size goes into `text_config`."""
    pretrained = fields.get("text_pretrained")
    if pretrained is not None:
        try:
            found = AutoTokenizer.from_pretrained(find_text_encoder(pretrained), trust_remote_code=False)
            return without_truncation(found)
        except (OSError, ValueError) as error:
            raise RecipeError(
                f"model.text_pretrained is {pretrained}, whose tokenizer cannot be loaded ({one_sentence(error)}); "
                "give the folder of an encoder of transformers or its name on the Hub."
            ) from error
    tokenizer = build_tokenizer(captions, min_count=recipe.data.min_word_count)
    words_only = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    tokenizer.backend_tokenizer.post_processor = words_only
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    fields["text_config"] = {**(fields.get("text_config") or {}), **sizes}
    return tokenizer


def without_truncation(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Returns a tokenizer that cuts texts only where it is asked to, whatever was saved with it."""
    tokenizer.backend_tokenizer.no_truncation()
    for setting in ("max_length", "stride", "truncation_strategy"):
        tokenizer.init_kwargs.pop(setting, None)
    return tokenizer

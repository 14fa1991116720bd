"""Models that answer questions, made new from a training config or from a trained one that is to be trained further."""

import logging
from typing import Any

from datasets import Dataset
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedModel, ProcessorMixin

from ...auto import config_class, model_class, processor_class
from ...data.questions import build_question_tokenizer
from ...ground.messages import one_sentence
from ...loading.limits import refuse_too_large
from ...loading.models import load_config, load_model
from ...models.configuration_hub import ConfigurationError
from ...training.recipe import RecipeError
from ..caption_rows import visual_feature_size
from ..new_models import (
    check_configured_feature_size,
    check_field_names,
    check_image_size,
    new_image_processor,
    usable_backbone,
)
from ..word_vectors import fill_word_vectors
from .recipe import VisualQuestionAnsweringRecipe
from .rows import column, image_rows, known_answers

logger = logging.getLogger(__name__)


def new_question_answerer(
    recipe: VisualQuestionAnsweringRecipe, rows: Dataset
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Makes the model and processor that a training config describes, with the words and answers of the training rows.

    With `model.init_from` both come from a trained model, its words and answers included, and the other fields of the
    section change its configuration.

    Args:
        recipe: sections `model` and `data` are used.
        rows: the training questions.

    Returns:
        The model, on the CPU, and its processor.

    Raises:
        RecipeError: unknown field, a field of the wrong type, or features of another dimension.
        DataError: no word or answer is frequent enough, or the file of word vectors cannot be used.
    """
    fields = dict(recipe.model)
    try:
        if "init_from" in fields:
            return fine_tuned(fields)
        return fresh(fields, recipe, rows)
    except ConfigurationError as error:
        raise RecipeError(f"section model: {error}") from error


def fine_tuned(fields: dict) -> tuple[PreTrainedModel, ProcessorMixin]:
    folder = fields.pop("init_from")
    config = load_config(folder, "visual_question_answering")
    if fields.pop("model_type", config.model_type) != config.model_type:
        raise RecipeError(f"model.init_from: {folder} is a {config.model_type}; set model.model_type accordingly.")
    check_fields(fields, type(config))
    return load_model(folder, "visual_question_answering", **fields)


def fresh(fields: dict, recipe: VisualQuestionAnsweringRecipe, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
    kind: Any = config_class(fields.pop("model_type"))
    check_fields(fields, kind)
    size = visual_feature_size(image_rows(rows))
    if size is not None and fields.get("vision_config") is None:
        check_configured_feature_size(fields.get("visual_feature_size"), size, recipe.data.spec)
        fields["visual_feature_size"] = size
    data = recipe.data
    tokenizer = build_question_tokenizer(
        column(rows, "question"), min_count=data.min_word_count, max_length=data.max_question_length
    )
    answers = known_answers(rows, data.min_answer_count)
    labels = {"id2label": dict(enumerate(answers)), "label2id": {text: index for index, text in enumerate(answers)}}
    try:
        config = kind(**fields, **labels, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise RecipeError(f"section model: {one_sentence(error)}") from error
    answerer: Any = model_class(config.model_type, "AutoModelForVisualQuestionAnswering")
    with usable_backbone(config.vision_config):
        refuse_too_large(lambda: answerer(config))
        model = answerer(config)
    image_processor, vision = None, model.base_model.vision
    if vision is not None:
        image_processor = new_image_processor(vision, data.image_size)
        check_image_size(vision, image_processor)
    if data.word_vectors is not None:
        fill_word_vectors(model, tokenizer, data.word_vectors, data.dictionary, "model.word_embedding_size")
    return model, processor_class(config.model_type)(image_processor=image_processor, tokenizer=tokenizer)


def check_fields(fields: dict, kind: type) -> None:
    """Raises a RecipeError for a key of section `model` that is no field of its configuration, or follows from data."""
    for name in ("vocab_size", "pad_token_id", "num_labels", "id2label", "label2id"):
        if name in fields:
            raise RecipeError(f"model.{name} follows from the training questions and answers; leave it out.")
    check_field_names(fields, kind)

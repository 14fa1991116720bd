"""New models that answer questions for a training config, or trained ones to fine-tune (`model.init_from`)."""

from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...data.vocabulary import build_question_tokenizer
from ..caption_rows import visual_feature_size
from ..new_models import (
    FOLLOWS_FROM_DATA,
    check_field_names,
    config_class_of,
    new_config,
    new_model,
    new_processor,
    set_feature_size,
    trained_model,
)
from ..word_vectors import fill_word_vectors
from .recipe import VisualQuestionAnsweringRecipe
from .rows import column, image_rows, known_answers

FOLLOWS_FROM_QUESTIONS = {
    **FOLLOWS_FROM_DATA,
    **dict.fromkeys(
        ("vocab_size", "pad_token_id", "num_labels", "id2label", "label2id"), "the training questions and answers"
    ),
}


def new_question_answerer(
    recipe: VisualQuestionAnsweringRecipe, rows: Dataset
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Makes the model and processor of a training config, with the words and answers of the training rows.

    With `model.init_from` both come from a trained model, its words and answers included, and the other fields of the
    section change its configuration.

    Args:
        recipe: sections `model` and `data` are used.
        rows: the training questions.

    Returns:
        The model, on the CPU, and its processor.

    Raises:
        RecipeError: unknown model type or field, a field of the wrong type, or features of another dimension.
        DataError: no word or answer is frequent enough, or the file of word vectors cannot be used.
    """
    fields, data = dict(recipe.model), recipe.data
    if "init_from" in fields:
        return trained_model(fields, "visual_question_answering", FOLLOWS_FROM_QUESTIONS)
    kind = config_class_of(fields.pop("model_type"), "visual_question_answering")
    check_field_names(fields, kind, FOLLOWS_FROM_QUESTIONS)
    set_feature_size(fields, kind, visual_feature_size(image_rows(rows)), data.spec)
    tokenizer = build_question_tokenizer(
        column(rows, "question"), min_count=data.min_word_count, max_length=data.max_question_length
    )
    answers = known_answers(rows, data.min_answer_count)
    labels = {"id2label": dict(enumerate(answers)), "label2id": {text: index for index, text in enumerate(answers)}}
    tokens = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    model = new_model(new_config(kind, fields, **labels, **tokens), "AutoModelForVisualQuestionAnswering")
    processor = new_processor(model, tokenizer, data.image_size)
    if data.word_vectors is not None:
        fill_word_vectors(model, tokenizer, data.word_vectors, data.dictionary, "model.word_embedding_size")
    return model, processor

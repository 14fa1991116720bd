"""Visual question answering: a model is trained to choose the answer to a question about an image."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...data.vocabulary import words_of_question
from ...loading.provenance import remember_features
from ...metrics.vqa import normalize_answer
from ...training.objectives.answer_scores import AnswerScores
from ...training.run import short_checksum
from ...training.task import Evaluation, Stage, Task
from ..caption_rows import features_identity
from .build import new_question_answerer
from .evaluate import answer_accuracies, predict_answers, score_name
from .recipe import VisualQuestionAnsweringRecipe
from .rows import QuestionCollator, column, image_rows, load_questions, questions_for

logger = logging.getLogger(__name__)


class VisualQuestionAnsweringTask(Task):
    """Trains a model that answers questions by a [`VisualQuestionAnsweringRecipe`]."""

    recipe_class = VisualQuestionAnsweringRecipe
    unit = "questions"
    model_noun = "a model that answers questions"
    does = "answers questions about images"
    pipeline_tag = "visual-question-answering"
    recipe: VisualQuestionAnsweringRecipe
    answers: dict[str, int]

    def load_rows(self, split: str) -> Dataset:
        return load_questions(self.recipe.data.spec, split, limit=self.recipe.data.limit)

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        kinds = sorted(set(column(rows, "answer_type"))) if "answer_type" in rows.column_names else []
        return ["accuracy", *(score_name(kind or "other") for kind in kinds)]

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        model, processor = new_question_answerer(self.recipe, rows)
        config: Any = model.config
        self.answers = {text: int(index) for text, index in config.label2id.items()}
        report_questions(processor.tokenizer, self.answers, rows)
        return model, processor

    def training_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        rows = self.evaluation_rows(model, processor, rows)
        remember_features(model, image_rows(rows), self.recipe.data.spec)
        return rows

    def evaluation_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        return questions_for(model, processor, rows, self.recipe.data.spec)

    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        answerer: Any = model
        answerer.get_input_embeddings().requires_grad_(self.recipe.training.train_word_vectors)
        return [Stage("answers", AnswerScores(), self.recipe.training)]

    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        return QuestionCollator(processor, self.answers)

    def evaluate(
        self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, accelerator: Accelerator, **options: Any
    ) -> Evaluation:
        found = predict_answers(model, processor, rows, accelerator, self.recipe.evaluation.batch_size)
        answers = [answer for answer, _ in found]
        ids = column(rows, "question_id") if "question_id" in rows.column_names else range(len(rows))
        results = [{"question_id": one, "answer": answer} for one, answer in zip(ids, answers, strict=True)]
        scores = answer_accuracies(rows, answers)
        return Evaluation(scores, results=results, report={"questions": len(rows), **scores})

    def identity(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> dict:
        identity = {
            "number of questions": len(rows),
            "text of the questions and answers": short_checksum([column(rows, "question"), column(rows, "answers")]),
            "vocabulary": short_checksum(sorted(processor.tokenizer.get_vocab().items())),
            "known answers": short_checksum(sorted(self.answers.items())),
        }
        return identity | features_identity(model)


def report_questions(tokenizer: Any, answers: dict[str, int], rows: Dataset) -> None:
    """Logs how many training questions are cut, and how many have no answer that the model can give."""
    longest = tokenizer.model_max_length
    cut = sum(len(words_of_question(question)) > longest for question in column(rows, "question"))
    unanswerable = sum(answers.keys().isdisjoint(map(normalize_answer, given)) for given in column(rows, "answers"))
    logger.info("%d words, %d answers.", len(tokenizer), len(answers))
    for number, what in (
        (cut, f"have more than {longest} words and are cut"),
        (unanswerable, "have none of these answers, and are trained without any"),
    ):
        if number:
            logger.info("%d of %d questions %s.", number, len(rows), what)

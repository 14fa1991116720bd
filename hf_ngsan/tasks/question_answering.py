"""Visual question answering as classification: predicts the answer to a question from a list of answers."""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from datasets import Dataset
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import PreTrainedModel, ProcessorMixin

from ..data import DataError, load_data
from ..data.collator import visual_arguments
from ..data.question_answering import WithImages
from ..data.vocabulary import build_question_tokenizer, with_words
from ..io.files import with_file_names
from ..loading.pipelines import QuestionAnsweringPipeline
from ..loading.provenance import remember_features
from ..metrics.vqa import answer_scores, normalize_answer, vqa_accuracy
from ..training.batches import map_sharded, take
from ..training.run import short_checksum
from ..training.task import Evaluation, Objective, Stage, Task
from ..visualization import plot_question
from . import caption_rows, new_models
from .settings import VisualQuestionAnsweringConfig

logger = logging.getLogger(__name__)


def load_questions(spec: str, split: str, with_answers: bool = True, limit: int | None = None) -> Dataset:
    """Returns the questions of a split, or the first `limit` of them, with their answers if `with_answers`."""
    rows = load_data(spec, split)
    for column in ("question", "answers")[: 1 + with_answers]:
        if column not in rows.column_names:
            raise DataError(f"{spec}, split {split}, has no column {column!r}; give vqa:DIR,features=DIR or nlvr:DIR.")
    return rows if limit is None else rows.take(limit)


def column(rows: Dataset, name: str) -> list:
    """Returns the values of a column without reading the images of the rows."""
    return rows.with_format(None)[name][:]


def rows_of_images(rows: Dataset) -> Dataset:
    """Returns the dataset with the image features of the questions, which may be the same dataset."""
    transform = rows.format["format_kwargs"].get("transform")
    return transform.images if isinstance(transform, WithImages) else rows


def questions_for(
    model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, data: str, keep_images: bool = False
) -> Dataset:
    """Returns the questions with the columns of images that the model reads; see [`caption_rows.rows_for`]."""
    images = rows_of_images(rows)
    read = caption_rows.rows_for(model, processor, images, data, keep_images)
    return read if images is rows else rows.with_transform(WithImages(read))


def known_answers(rows: Dataset, min_count: int) -> list[str]:
    """Returns normalized answers that are the most common one for `min_count` questions, most frequent first."""
    if "multiple_choice_answer" in rows.column_names:
        counts = Counter(map(normalize_answer, column(rows, "multiple_choice_answer")))
    else:
        lists = filter(None, column(rows, "answers"))
        counts = Counter(Counter(map(normalize_answer, answers)).most_common(1)[0][0] for answers in lists)
    answers = [answer for answer, number in counts.items() if number >= min_count and answer]
    if not answers:
        raise DataError(f"No answer occurs {min_count} times in {len(rows)} questions; lower data.min_answer_count.")
    return sorted(answers, key=lambda answer: (-counts[answer], answer))


def collate_questions(
    processor: Any, rows: Sequence[Mapping], answers: Mapping[str, int] | None = None
) -> dict[str, torch.Tensor]:
    """Returns model inputs for rows and, if the index of each answer is given, `labels` `(B, A)` in [0, 1]."""
    questions = with_words(processor.tokenizer, [row["question"] for row in rows])
    batch = dict(processor(text=questions, **visual_arguments(rows)))
    if answers is not None:
        batch["labels"] = torch.zeros(len(rows), len(answers))
        for scores, row in zip(batch["labels"], rows, strict=True):
            for answer, score in answer_scores(row["answers"]).items():
                if answer in answers:
                    scores[answers[answer]] = score
    return batch


OF_QUESTIONS = ("vocab_size", "pad_token_id", "num_labels", "id2label", "label2id")
FOLLOWS_FROM_QUESTIONS = {
    **new_models.FOLLOWS_FROM_DATA,
    **dict.fromkeys(OF_QUESTIONS, "the training questions and answers"),
}


def new_question_answerer(config: VisualQuestionAnsweringConfig, rows: Dataset) -> tuple[Any, ProcessorMixin]:
    """Makes model and processor of a training config; new ones have the words and answers of the training rows."""
    fields, data, task = dict(config.model), config.data, "visual_question_answering"
    if "init_from" in fields:
        return new_models.trained_model(fields, task, FOLLOWS_FROM_QUESTIONS)
    kind = new_models.new_config_class(fields, task, FOLLOWS_FROM_QUESTIONS)
    new_models.set_feature_size(fields, kind, caption_rows.visual_feature_size(rows_of_images(rows)), data.spec)
    limits = {"min_count": data.min_word_count, "max_length": data.max_question_length}
    tokenizer = build_question_tokenizer(column(rows, "question"), **limits)
    answers = known_answers(rows, data.min_answer_count)
    labels = {"id2label": dict(enumerate(answers)), "label2id": {text: index for index, text in enumerate(answers)}}
    tokens = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    model = new_models.new_model(kind(**fields, **labels, **tokens), "AutoModelForVisualQuestionAnswering")
    processor = new_models.new_processor(model, tokenizer, data.image_size)
    new_models.fill_word_vectors(model, tokenizer, data, "model.word_embedding_size")
    return model, processor


def predict_answers(
    model: PreTrainedModel, processor: Any, rows: Dataset, accelerator: Accelerator | None = None, batch_size: int = 64
) -> list[tuple[str, float]]:
    """Returns, in every process, the best answer to each question of [`questions_for`] and its score in [0, 1]."""
    labels: Any = model.config.id2label

    def answer(indices: range) -> list[tuple[str, float]]:
        batch = collate_questions(processor, take(rows, indices))
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        with torch.inference_mode():
            scores, best = model(**batch).logits.float().sigmoid().max(-1)
        return [(labels[index], score) for index, score in zip(best.tolist(), scores.tolist(), strict=True)]

    return map_sharded(answer, len(rows), batch_size, accelerator)


def answer_accuracies(rows: Dataset, answers: Sequence[str]) -> dict[str, float]:
    """Returns the VQA accuracy, in percent, of one answer per row, also for each `answer_type` of the rows."""
    accuracies = [vqa_accuracy(answer, people) for answer, people in zip(answers, column(rows, "answers"), strict=True)]
    scores = {"accuracy": 100 * sum(accuracies) / len(accuracies)}
    if "answer_type" in rows.column_names:
        by_type: dict[str, list[float]] = defaultdict(list)
        for kind, accuracy in zip(column(rows, "answer_type"), accuracies, strict=True):
            by_type[accuracy_name(kind or "other")].append(accuracy)
        scores |= {name: 100 * sum(shares) / len(shares) for name, shares in sorted(by_type.items())}
    return scores


def accuracy_name(answer_type: str) -> str:
    """Returns `accuracy_yes_no` for the type `yes/no`."""
    return f"accuracy_{re.sub(r'[^a-z0-9]+', '_', answer_type.lower())}"


class AnsweredQuestion(NamedTuple):
    """The result for a question: pairs of answer and score, the best first, or the reason for skipping it."""

    name: str
    answers: list[tuple[str, float]]
    error: str | None


def answer_questions(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    questions: Dataset | Iterable,
    names: Iterable[str],
    *,
    top_k: int = 1,
    attention_folder: str | Path | None = None,
    on_error: str = "raise",
    batch_size: int = 64,
) -> Iterator[AnsweredQuestion]:
    """Answers questions one batch at a time with [`QuestionAnsweringPipeline`].

    Questions are rows of a dataset, or mappings with `question` and an image or features. An attention folder gets a
    figure of each question, `NAME.png`. Questions that cannot be read are skipped if `on_error="skip"`.
    """
    arguments: dict[str, Any] = {"top_k": top_k, "on_error": on_error}
    if attention_folder is not None:
        arguments |= caption_rows.prepare_figures(attention_folder)
    pipeline = QuestionAnsweringPipeline(model=model, processor=processor, batch_size=batch_size)
    questions = questions if isinstance(questions, Dataset) else iter(questions)
    for (name, file_name), answers in zip(with_file_names(names), pipeline(questions, **arguments), strict=True):
        best = answers[0]
        if best.get("error") is not None:
            yield AnsweredQuestion(name, [], best["error"])
            continue
        if attention_folder is not None:
            figure = Path(attention_folder) / f"{file_name}.png"
            parts = ("image", "words", "attention", "answer", "answer_attention")
            caption_rows.save_attention(best, name, figure, plot_question, parts)
        yield AnsweredQuestion(name, [(answer["answer"], answer["score"]) for answer in answers], None)


class AnswerScores(Objective):
    """Binary cross-entropy of each row with soft targets, summed over the answers, as in MCAN's released code.

    A batch holds `labels (B, A)`, the score in [0, 1] of each of A answers, and the model's other inputs.
    """

    def weight(self, inputs: dict) -> torch.Tensor:
        return torch.full((), float(len(inputs["labels"])), device=inputs["labels"].device)

    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        logits = model(**inputs).logits.float()
        loss = binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        score = labels.gather(-1, logits.argmax(-1, keepdim=True)).sum()
        return loss, {"loss": loss.detach(), "score": score, "answered": self.weight({"labels": labels})}

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["answered"], "answer_score": sums["score"] / sums["answered"]}


class VisualQuestionAnsweringTask(Task):
    """Trains a model that answers questions from a [`VisualQuestionAnsweringConfig`]."""

    config_class = VisualQuestionAnsweringConfig
    unit = "questions"
    model_noun = "a model that answers questions"
    does = "answers questions about images"
    pipeline_tag = "visual-question-answering"
    config: VisualQuestionAnsweringConfig
    answers: dict[str, int]

    def load_rows(self, split: str) -> Dataset:
        return load_questions(self.config.data.spec, split, limit=self.config.data.limit)

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        kinds = sorted(set(column(rows, "answer_type"))) if "answer_type" in rows.column_names else []
        return ["accuracy", *(accuracy_name(kind or "other") for kind in kinds)]

    def build(self, rows: Dataset) -> tuple[PreTrainedModel, ProcessorMixin]:
        model, processor = new_question_answerer(self.config, rows)
        config: Any = model.config
        self.answers = {text: int(index) for text, index in config.label2id.items()}
        without = sum(self.answers.keys().isdisjoint(map(normalize_answer, texts)) for texts in column(rows, "answers"))
        message = "%d words, %d answers; %d of %d questions have none of these answers, and all their targets are 0."
        logger.info(message, len(processor.tokenizer), len(self.answers), without, len(rows))
        return model, processor

    def training_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        rows = self.evaluation_rows(model, processor, rows)
        remember_features(model, rows_of_images(rows), self.config.data.spec)
        return rows

    def evaluation_rows(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> Dataset:
        return questions_for(model, processor, rows, self.config.data.spec)

    def stages(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> list[Stage]:
        answerer: Any = model
        if not self.config.training.train_word_vectors:
            answerer.get_input_embeddings().requires_grad_(False)
        return [Stage("answers", AnswerScores(), self.config.training)]

    def collator(self, processor: ProcessorMixin) -> Callable[[list], dict]:
        return partial(collate_questions, processor, answers=self.answers)

    def evaluate(
        self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, accelerator: Accelerator, **options: Any
    ) -> Evaluation:
        best = predict_answers(model, processor, rows, accelerator, self.config.evaluation.batch_size)
        answers = [answer for answer, _ in best]
        ids = column(rows, "question_id") if "question_id" in rows.column_names else range(len(rows))
        results = [{"question_id": number, "answer": answer} for number, answer in zip(ids, answers, strict=True)]
        scores = answer_accuracies(rows, answers)
        return Evaluation(scores, results=results, report={"questions": len(rows), **scores})

    def identity(self, model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset) -> dict:
        identity = {
            "number of questions": len(rows),
            "text of the questions and answers": short_checksum([column(rows, "question"), column(rows, "answers")]),
            "vocabulary": short_checksum(sorted(processor.tokenizer.get_vocab().items())),
            "known answers": short_checksum(sorted(self.answers.items())),
        }
        return identity | caption_rows.features_identity(model)

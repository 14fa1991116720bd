"""Questions for training and evaluation, and their batches."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...data import DataError, load_data
from ...data.collator import visual_arguments
from ...data.vocabulary import with_words
from ...data.vqa import WithImages
from ...metrics.vqa import answer_scores, normalize_answer
from ..caption_rows import rows_for


def load_questions(spec: str, split: str, with_answers: bool = True, limit: int | None = None) -> Dataset:
    """Returns the questions of one split of a dataset, or the first `limit` of them.

    Raises:
        DataError: the data cannot be used, or have no questions, or no answers although `with_answers` is True.
    """
    rows = load_data(spec, split)
    for column in ("question", "answers")[: 1 + with_answers]:
        if column not in rows.column_names:
            raise DataError(
                f"{spec}, split {split}, has no column {column!r}; give a dataset of questions with their answers, "
                "such as vqa:DIR,features=DIR or nlvr:DIR."
            )
    return rows if limit is None else rows.take(limit)


def column(rows: Dataset, name: str) -> list:
    """Returns the values of a column without reading the images beside it."""
    return rows.with_format(None)[name][:]


def image_rows(rows: Dataset) -> Dataset:
    """Returns the dataset with the features of the images of questions: another one, or the same."""
    transform = rows.format["format_kwargs"].get("transform")
    return transform.images if isinstance(transform, WithImages) else rows


def questions_for(
    model: PreTrainedModel, processor: ProcessorMixin, rows: Dataset, data: str, keep_images: bool = False
) -> Dataset:
    """Returns the questions with the columns of images that the model reads; see [`caption_rows.rows_for`].

    Raises:
        DataError: the features are missing, or have another dimension than the model takes.
        ProvenanceError: the features are of another backbone.
    """
    images = image_rows(rows)
    seen = rows_for(model, processor, images, data, keep_images)
    return seen if images is rows else rows.with_transform(WithImages(seen))


def known_answers(rows: Dataset, min_count: int) -> list[str]:
    """Returns the answers that a model learns, the most frequent first.

    They are the normalised `multiple_choice_answer` of the questions, or else the most common of their `answers`.

    Args:
        rows: training questions.
        min_count: minimal number of questions with the answer.

    Raises:
        DataError: no answer is frequent enough.
    """
    if "multiple_choice_answer" in rows.column_names:
        best: Iterable[str] = map(normalize_answer, column(rows, "multiple_choice_answer"))
    else:
        best = (
            Counter(map(normalize_answer, given)).most_common(1)[0][0] for given in column(rows, "answers") if given
        )
    counts = Counter(best)
    answers = [answer for answer, number in counts.items() if number >= min_count and answer]
    if not answers:
        raise DataError(
            f"No answer belongs to {min_count} of the {len(rows)} training questions; lower data.min_answer_count."
        )
    return sorted(answers, key=lambda answer: (-counts[answer], answer))


class QuestionCollator:
    """Makes a batch from rows with questions.

    Args:
        processor: processor of the model.
        answers: index of each answer of the model; None leaves `labels` out.
    """

    def __init__(self, processor: Any, answers: Mapping[str, int] | None = None) -> None:
        self.processor, self.answers = processor, answers

    def __call__(self, rows: Sequence[Mapping]) -> dict[str, torch.Tensor]:
        """Returns the inputs of the model and, with `answers`, `labels` `(B, A)`: scores in [0, 1].

        Answers that the model does not have are ignored. A question without any word becomes an unknown word.

        Raises:
            DataError: a row has neither features nor an image, or some have boxes and others not.
        """
        questions = with_words(self.processor.tokenizer, [row["question"] for row in rows])
        batch = dict(self.processor(text=questions, **visual_arguments(rows)))
        if self.answers is not None:
            labels = torch.zeros(len(rows), len(self.answers))
            for scores, row in zip(labels, rows, strict=True):
                for answer, score in answer_scores(row["answers"]).items():
                    if answer in self.answers:
                        scores[self.answers[answer]] = score
            batch["labels"] = labels
        return batch

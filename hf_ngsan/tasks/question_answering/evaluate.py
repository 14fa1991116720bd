"""Answers of a model to the questions of a dataset, and their VQA accuracy."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import PreTrainedModel

from ...metrics.vqa import vqa_accuracy
from ...training.batches import take
from ...training.gathering import map_sharded
from .rows import QuestionCollator, column


def predict_answers(
    model: PreTrainedModel,
    processor: Any,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    batch_size: int = 64,
) -> list[tuple[str, float]]:
    """Answers every question of a dataset.

    Args:
        model: a model on the accelerator's device, not wrapped, in evaluation mode.
        processor: its processor.
        rows: rows with a column `question` and the columns of images that the model reads.
        accelerator: accelerator of the processes that split the work; each gets the whole result.
        batch_size: questions answered together in one process.

    Returns:
        The best answer to each question and its score in [0, 1].
    """
    collate = QuestionCollator(processor)
    labels: Any = model.config.id2label

    def answer(indices: range) -> list[tuple[str, float]]:
        batch = {name: tensor.to(model.device) for name, tensor in collate(take(rows, indices)).items()}
        with torch.inference_mode():
            scores, best = model(**batch).logits.float().sigmoid().max(-1)
        return [(labels[index], score) for index, score in zip(best.tolist(), scores.tolist(), strict=True)]

    return map_sharded(answer, len(rows), batch_size, accelerator)


def answer_accuracies(rows: Dataset, answers: Sequence[str]) -> dict[str, float]:
    """Returns the VQA accuracy of answers in percent, also for each type of answer if rows have types.

    Args:
        rows: rows with `answers` and perhaps `answer_type`.
        answers: answers of a model, one per row.
    """
    found = [vqa_accuracy(answer, people) for answer, people in zip(answers, column(rows, "answers"), strict=True)]
    scores = {"accuracy": 100 * sum(found) / len(found)}
    if "answer_type" in rows.column_names:
        of_types: dict[str, list[float]] = defaultdict(list)
        for kind, accuracy in zip(column(rows, "answer_type"), found, strict=True):
            of_types[score_name(kind or "other")].append(accuracy)
        scores |= {name: 100 * sum(of_type) / len(of_type) for name, of_type in sorted(of_types.items())}
    return scores


def score_name(answer_type: str) -> str:
    """Returns `accuracy_yes_no` for the type `yes/no`."""
    return f"accuracy_{re.sub(r'[^a-z0-9]+', '_', answer_type.lower())}"

"""Binary cross-entropy of answers, against a loop, and its independence of how the batch is split."""

import math
from types import SimpleNamespace

import pytest
import torch

from hf_ngsan.tasks.question_answering import AnswerScores


def model(features: torch.Tensor) -> SimpleNamespace:
    return SimpleNamespace(logits=features * 2 - 1)


def test_loss_and_score_are_sums_over_questions():
    features, labels = torch.rand(3, 4), torch.tensor([[0, 0.3, 1, 0], [0.6, 0, 0, 0], [0.0] * 4])
    objective = AnswerScores()
    loss, statistics = objective.loss(model, {"features": features, "labels": labels})
    expected, score = 0.0, 0.0
    for row, targets in zip(features, labels, strict=True):
        logits = [2 * float(value) - 1 for value in row]
        for logit, target in zip(logits, targets.tolist(), strict=True):
            probability = 1 / (1 + math.exp(-logit))
            expected -= target * math.log(probability) + (1 - target) * math.log(1 - probability)
        score += float(targets[logits.index(max(logits))])
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(objective.weight({"labels": labels})) == 3
    summary = objective.summary({name: float(value) for name, value in statistics.items()})
    assert summary == pytest.approx({"loss": expected / 3, "answer_score": score / 3}, rel=1e-5)

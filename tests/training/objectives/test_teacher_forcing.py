"""Teacher forcing, from captions and from a trained captioner, against loops over words."""

import math
from types import SimpleNamespace

import pytest
import torch

from hf_ngsan.training.objectives import TeacherForcing, Update
from hf_ngsan.training.objectives.teacher_forcing import Distillation
from tests.tables import each_row

VOCABULARY = 5


class FixedLogits:
    """A model whose output does not depend on its input; it records its arguments."""

    def __init__(self, logits):
        self.logits = logits

    def __call__(self, **inputs):
        self.inputs = inputs
        return SimpleNamespace(logits=self.logits)

    def prepare_decoder_input_ids_from_labels(self, labels):
        return labels + 1000

    def to(self, device):
        return self

    def eval(self):
        return self


def slow_loss(scores, target, smoothing=0.0):
    """(1 - s) * -log p(target) + s * mean over words of -log p(word)."""
    log_norm = math.log(sum(math.exp(score) for score in scores))
    smooth = sum(log_norm - score for score in scores) / len(scores)
    return (1 - smoothing) * (log_norm - scores[target]) + smoothing * smooth


def slow_divergence(scores, taught, temperature):
    """KL(teacher || captioner) of one word, both with the temperature."""
    softened = []
    for logits in (taught, scores):
        powers = [math.exp(score / temperature) for score in logits]
        softened.append([power / sum(powers) for power in powers])
    return sum(p * math.log(p / q) for p, q in zip(*softened, strict=True))


@each_row(
    ("smoothing", "caption_weights", "weight", "temperature"),
    [
        *[(0.0, None, None, 1.0), (0.1, None, None, 1.0), (0.0, [0.5, 2.0, 0.0], None, 1.0)],
        *[(0.1, [0.5, 1.0, 2.0], 0.3, 1.0), (0.1, [0.5, 1.0, 2.0], 0.5, 2.0), (0.0, None, 1.0, 0.7)],
        (0.1, None, 0.0, 1.0),
    ],
)
def test_the_loss_is_the_weighted_sum_over_target_words(smoothing, caption_weights, weight, temperature):
    torch.manual_seed(0)
    logits, taught = torch.randn(2, 3, 4, VOCABULARY).unbind()
    labels = torch.randint(0, VOCABULARY, (3, 4))
    labels[0, 2:] = labels[2, 1:] = -100
    teacher = FixedLogits(taught)
    distillation = None if weight is None else Distillation(teacher, weight, temperature)
    model, objective = FixedLogits(logits), TeacherForcing(smoothing, distillation=distillation)
    passed = {"labels": labels, "visual_features": torch.ones(1)}
    if caption_weights is not None:
        passed["caption_weights"] = torch.tensor(caption_weights)
    inputs = objective.prepare_batch(model, passed, Update(0, 0))
    loss, statistics = objective.loss(model, inputs)
    expected = weights = 0.0
    for row, caption_weight in enumerate(caption_weights or [1.0] * 3):
        for place in range(4):
            if labels[row, place] == -100:
                continue
            scores, targets, share = logits[row, place].tolist(), taught[row, place].tolist(), weight or 0.0
            learnt = (1 - share) * slow_loss(scores, labels[row, place], smoothing)
            learnt += share * temperature**2 * slow_divergence(scores, targets, temperature)
            expected, weights = expected + caption_weight * learnt, weights + caption_weight
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert objective.weight(inputs) == pytest.approx(weights)
    assert set(model.inputs) == {"visual_features", "decoder_input_ids", "use_cache"}
    assert torch.equal(model.inputs["decoder_input_ids"], labels + 1000)
    if weight is not None:
        assert set(teacher.inputs) == {"visual_features", "decoder_input_ids"}
    correct = ((logits.argmax(-1) == labels) & (labels != -100)).sum().item()
    summary = objective.summary({name: float(value) for name, value in statistics.items()})
    assert summary == pytest.approx({"loss": loss.item() / weights, "token_accuracy": correct / 7})


def test_a_batch_without_targets_has_no_loss_and_no_gradient():
    logits = torch.randn(2, 3, VOCABULARY, requires_grad=True)
    loss, _ = TeacherForcing().loss(FixedLogits(logits), {"labels": torch.full((2, 3), -100)})
    loss.backward()
    assert loss == 0
    assert logits.grad.abs().sum() == 0


def test_word_dropout_makes_words_unknown_in_training_only_and_never_the_first():
    torch.manual_seed(0)
    rows, length, share, unknown = 200, 10, 0.3, 3
    model = FixedLogits(torch.zeros(rows, length, VOCABULARY))
    model.training = True
    objective = TeacherForcing(word_dropout=share, unknown_token_id=unknown)
    inputs = objective.prepare_batch(model, {"labels": torch.full((rows, length), 4)}, Update(0, 0))
    objective.loss(model, inputs)
    words = model.inputs["decoder_input_ids"]
    changed = words != inputs["decoder_input_ids"]
    assert (words[changed] == unknown).all() and not changed[:, 0].any()
    assert changed[:, 1:].float().mean().item() == pytest.approx(share, abs=0.05)
    model.training = False
    objective.loss(model, inputs)
    assert torch.equal(model.inputs["decoder_input_ids"], inputs["decoder_input_ids"])

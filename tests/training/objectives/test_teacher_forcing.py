import math
from types import SimpleNamespace

import pytest
import torch

from hf_ngsan.training.objectives import TeacherForcing, Update
from hf_ngsan.training.objectives.teacher_forcing import Distillation
from tests.tables import each_row

VOCABULARY = 5


class FixedLogits:
    """A model whose answer does not depend on its input; records what it was called with."""

    def __init__(self, logits):
        self.logits = logits

    def __call__(self, **inputs):
        self.inputs = inputs
        return SimpleNamespace(logits=self.logits)

    def prepare_decoder_input_ids_from_labels(self, labels):
        return labels + 1000


def slow_loss(logits, labels, smoothing):
    """Sum over targets of (1 - s) * -log p(target) + s * mean over words of -log p(word), one position at a time."""
    total = 0.0
    for row, targets in zip(logits.tolist(), labels.tolist(), strict=True):
        for scores, target in zip(row, targets, strict=True):
            if target != -100:
                log_norm = math.log(sum(math.exp(score) for score in scores))
                smooth = sum(log_norm - score for score in scores) / len(scores)
                total += (1 - smoothing) * (log_norm - scores[target]) + smoothing * smooth
    return total


@each_row("smoothing", [0.0, 0.1])
def test_loss_is_the_sum_over_target_tokens(smoothing):
    torch.manual_seed(0)
    logits = torch.randn(3, 4, VOCABULARY)
    labels = torch.randint(0, VOCABULARY, (3, 4))
    labels[0, 2:] = labels[2] = -100
    model, objective = FixedLogits(logits), TeacherForcing(smoothing)
    inputs = objective.prepare_batch(model, {"labels": labels, "visual_features": torch.ones(1)}, Update(0, 0))
    assert objective.weight(inputs) == 6
    loss, statistics = objective.loss(model, inputs)
    assert loss.item() == pytest.approx(slow_loss(logits, labels, smoothing), rel=1e-5)
    assert set(model.inputs) == {"visual_features", "decoder_input_ids", "use_cache"}
    assert torch.equal(model.inputs["decoder_input_ids"], labels + 1000)

    correct = ((logits.argmax(-1) == labels) & (labels != -100)).sum().item()
    summary = objective.summary({name: float(value) for name, value in statistics.items()})
    assert summary == pytest.approx({"loss": loss.item() / 6, "token_accuracy": correct / 6})


def test_a_batch_without_targets_has_no_loss_and_no_gradient():
    logits = torch.randn(2, 3, VOCABULARY, requires_grad=True)
    loss, _ = TeacherForcing().loss(FixedLogits(logits), {"labels": torch.full((2, 3), -100)})
    loss.backward()
    assert loss == 0
    assert logits.grad.abs().sum() == 0


def test_the_words_of_a_caption_count_as_much_as_its_weight():
    torch.manual_seed(0)
    logits = torch.randn(3, 4, VOCABULARY)
    labels = torch.randint(0, VOCABULARY, (3, 4))
    labels[0, 2:] = labels[2] = -100
    model, objective = FixedLogits(logits), TeacherForcing()
    weights = [0.5, 2.0, 0.0]
    inputs = objective.prepare_batch(model, {"labels": labels, "caption_weights": torch.tensor(weights)}, Update(0, 0))
    assert objective.weight(inputs) == 2 * 0.5 + 4 * 2.0
    loss, statistics = objective.loss(model, inputs)
    expected = sum(
        weight * slow_loss(logits[row : row + 1], labels[row : row + 1], 0) for row, weight in enumerate(weights)
    )
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert "caption_weights" not in model.inputs
    summary = objective.summary({name: float(value) for name, value in statistics.items()})
    assert summary["loss"] == pytest.approx(loss.item() / 9)


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


def test_word_dropout_without_an_unknown_word_is_refused():
    with pytest.raises(ValueError, match="word_dropout"):
        TeacherForcing(word_dropout=0.1)


class Teacher(FixedLogits):
    """A model of given logits that notes what it was asked."""

    def to(self, device):
        return self

    def eval(self):
        return self


def slow_divergence(logits, taught, temperature):
    """KL(teacher || captioner) of one word, both softened."""
    softened = []
    for scores in (taught, logits):
        powers = [math.exp(score / temperature) for score in scores]
        softened.append([power / sum(powers) for power in powers])
    return sum(p * math.log(p / q) for p, q in zip(*softened, strict=True))


@each_row(("weight", "temperature"), [(0.3, 1.0), (0.5, 2.0), (1.0, 0.7), (0.0, 1.0)])
def test_a_teacher_shares_the_loss(weight, temperature):
    torch.manual_seed(0)
    logits, taught = torch.randn(2, 3, 4, VOCABULARY).unbind()
    labels = torch.randint(0, VOCABULARY, (3, 4))
    labels[0, 2:] = -100
    weights = torch.tensor([0.5, 1.0, 2.0])
    teacher = Teacher(taught)
    objective = TeacherForcing(0.1, distillation=Distillation(teacher, weight, temperature))
    given = {"labels": labels, "caption_weights": weights, "visual_features": torch.ones(1)}
    inputs = objective.prepare_batch(FixedLogits(logits), given, Update(0, 0))
    assert set(teacher.inputs) == {"visual_features", "decoder_input_ids"}
    loss, _ = objective.loss(FixedLogits(logits), inputs)
    expected = 0.0
    for row, caption_weight in enumerate(weights.tolist()):
        for place in range(4):
            target = labels[row : row + 1, place : place + 1]
            if target.item() != -100:
                here = logits[row : row + 1, place : place + 1]
                divergence = slow_divergence(here[0, 0].tolist(), taught[row, place].tolist(), temperature)
                learnt = (1 - weight) * slow_loss(here, target, 0.1) + weight * temperature**2 * divergence
                expected += caption_weight * learnt
    assert loss.item() == pytest.approx(expected, rel=1e-4)


def test_a_captioner_has_nothing_to_learn_from_itself():
    torch.manual_seed(0)
    logits = torch.randn(2, 3, VOCABULARY, requires_grad=True)
    labels = torch.randint(0, VOCABULARY, (2, 3))
    objective = TeacherForcing(distillation=Distillation(Teacher(logits.detach() + 3), 1.0))
    inputs = objective.prepare_batch(FixedLogits(logits), {"labels": labels}, Update(0, 0))
    loss, _ = objective.loss(FixedLogits(logits), inputs)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-5)
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), rtol=0, atol=1e-5)

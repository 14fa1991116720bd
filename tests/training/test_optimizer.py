import dataclasses
from itertools import pairwise

import pytest
import torch
from torch import nn

from hf_ngsan.training.config import TrainingSettings
from hf_ngsan.training.optimizer import WeightAverage, learning_rate_at


def rates(settings, steps_per_epoch, epochs):
    return [learning_rate_at(step, steps_per_epoch, settings) for step in range(steps_per_epoch * epochs)]


def test_the_default_is_the_schedule_of_the_paper_which_changes_between_epochs_only():
    paper = [min(t * 1e-4, 3e-4) for t in range(1, 7)] + [1.5e-4] * 3 + [0.75e-4] * 3 + [0.375e-4] * 3
    assert rates(TrainingSettings(), 4, 15) == pytest.approx([rate for rate in paper for _ in range(4)])


def test_cosine_warms_up_with_each_update_and_falls_to_nearly_zero():
    settings = TrainingSettings(schedule="cosine", learning_rate=1.0, warmup_epochs=1, epochs=5)
    per_step = rates(settings, 10, 5)
    assert per_step[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert per_step[9] == per_step[10] == 1.0
    assert all(later < earlier for earlier, later in pairwise(per_step[10:]))
    assert per_step[30] == pytest.approx(0.5)
    assert per_step[-1] < 0.01


def test_inverse_square_root_is_that_of_vaswani():
    """Eq. 3: d ** -0.5 * min(n ** -0.5, n * warmup ** -1.5) of update n, whose peak is (d * warmup) ** -0.5."""
    settings = TrainingSettings(schedule="inverse_sqrt", learning_rate=(512 * 30) ** -0.5, warmup_updates=30)
    expected = [512**-0.5 * min(update**-0.5, update * 30**-1.5) for update in range(1, 201)]
    assert rates(settings, 20, 10) == pytest.approx(expected)
    by_epochs = dataclasses.replace(settings, warmup_updates=None, warmup_epochs=3)
    assert rates(by_epochs, 10, 20) == pytest.approx(expected)


def test_constant_stays_after_the_warm_up_if_there_is_one():
    settings = TrainingSettings(schedule="constant", learning_rate=1.0, warmup_epochs=2)
    assert rates(settings, 1, 20) == pytest.approx([0.5] + [1.0] * 19)
    for schedule in ("step", "cosine", "inverse_sqrt", "constant"):
        settings = TrainingSettings(schedule=schedule, learning_rate=1.0, warmup_epochs=0)
        assert learning_rate_at(0, 7, settings) == 1.0, schedule


def test_the_average_follows_its_recurrence():
    model = nn.Linear(2, 1, bias=False)
    average = WeightAverage(model, decay=0.9)
    expected = model.weight.detach().double().clone()
    for step in range(1, 40):
        with torch.no_grad():
            model.weight += 1.0
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach().double()
    torch.testing.assert_close(average.tensors["weight"].double(), expected, rtol=1e-5, atol=1e-5)


def test_weights_come_back_to_the_bit_even_after_an_error():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    average = WeightAverage(model, decay=0.5)
    assert "1.running_mean" in average.tensors
    assert "1.num_batches_tracked" not in average.tensors
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    original = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(KeyError), average.applied():
        assert torch.equal(model[0].weight, average.tensors["0.weight"])
        raise KeyError
    assert all(torch.equal(tensor, original[name]) for name, tensor in model.state_dict().items())


def test_frozen_weights_have_no_average():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[0].bias.requires_grad_(False)
    average = WeightAverage(model, decay=0.5)
    assert {*average.tensors} == {"0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"}
    nn.init.normal_(model[0].weight)
    average.restart()
    assert torch.equal(average.tensors["0.weight"], model[0].weight)

import dataclasses
from itertools import pairwise

import pytest

from hf_ngsan.training.optimizer import learning_rate_at
from hf_ngsan.training.settings import TrainingSettings
from tests.tables import each_row


def rates(settings, steps_per_epoch, epochs):
    return [learning_rate_at(step, steps_per_epoch, settings) for step in range(steps_per_epoch * epochs)]


def test_the_default_is_the_schedule_of_the_paper():
    per_epoch = rates(TrainingSettings(), 1, 15)
    paper = [min(t * 1e-4, 3e-4) for t in range(1, 7)] + [1.5e-4] * 3 + [0.75e-4] * 3 + [0.375e-4] * 3
    assert per_epoch == pytest.approx(paper)


def test_the_step_schedule_changes_between_epochs_only():
    per_step = rates(TrainingSettings(), 4, 15)
    for epoch in range(15):
        assert len(set(per_step[4 * epoch : 4 * epoch + 4])) == 1


def test_cosine_warms_up_with_each_update_and_falls_to_nearly_zero():
    settings = TrainingSettings(schedule="cosine", learning_rate=1.0, warmup_epochs=1, epochs=5)
    per_step = rates(settings, 10, 5)
    assert per_step[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert per_step[9] == per_step[10] == 1.0
    assert all(later < earlier for earlier, later in pairwise(per_step[10:]))
    assert per_step[30] == pytest.approx(0.5)
    assert per_step[-1] < 0.01


def test_constant_stays_after_the_warm_up():
    settings = TrainingSettings(schedule="constant", learning_rate=1.0, warmup_epochs=2)
    assert rates(settings, 1, 20) == pytest.approx([0.5] + [1.0] * 19)


def test_inverse_square_root_is_that_of_vaswani():
    """Eq. 3: d ** -0.5 * min(n ** -0.5, n * warmup ** -1.5) of update n, whose peak is (d * warmup) ** -0.5."""
    settings = TrainingSettings(schedule="inverse_sqrt", learning_rate=(512 * 30) ** -0.5, warmup_updates=30)
    expected = [512**-0.5 * min(update**-0.5, update * 30**-1.5) for update in range(1, 201)]
    assert rates(settings, 20, 10) == pytest.approx(expected)
    by_epochs = dataclasses.replace(settings, warmup_updates=None, warmup_epochs=3)
    assert rates(by_epochs, 10, 20) == pytest.approx(expected)


@each_row("schedule", ["step", "cosine", "inverse_sqrt", "constant"])
def test_no_warm_up(schedule):
    settings = TrainingSettings(schedule=schedule, learning_rate=1.0, warmup_epochs=0)
    assert learning_rate_at(0, 7, settings) == 1.0


def test_warm_up_over_the_whole_run_is_allowed():
    settings = dataclasses.replace(TrainingSettings(schedule="cosine", warmup_epochs=3, epochs=3), learning_rate=1.0)
    assert learning_rate_at(8, 3, settings) == pytest.approx(1.0)

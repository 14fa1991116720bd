"""Curves of trainings: the points that they show, and their axes."""

from hf_ngsan.visualization import plot_training_curve

HISTORY = [{"epoch": 1, "loss": 2.5}, {"epoch": 2, "loss": 1.5, "cider_d": 0.25}, {"epoch": 3, "loss": 1.25}]


def points(axes):
    [line] = axes.lines
    return [*zip(*line.get_data(), strict=True)]


def test_loss_and_score_have_axes_of_their_own():
    loss, score = plot_training_curve(HISTORY, "cider_d").axes
    assert points(loss) == [(1, 2.5), (2, 1.5), (3, 1.25)] and points(score) == [(2, 0.25)]
    assert [axes.get_ylabel() for axes in (loss, score)] == ["loss", "cider_d"] and loss.get_xlabel() == "epoch"


def test_a_score_that_was_never_computed_has_no_axis():
    assert len(plot_training_curve(HISTORY[:1], "cider_d").axes) == len(plot_training_curve(HISTORY).axes) == 1

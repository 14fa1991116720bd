"""Paired comparisons agree with SciPy's bootstrap on the same resamples, and their intervals cover the true value."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from hf_ngsan.metrics.comparison import MIN_ITEMS, NUMBERS_AT_ONCE, compare, holm
from tests.tables import each_row


@each_row(("number", "resamples"), [(50, 2000), (5000, 2000)])
def test_the_interval_is_scipys_on_the_same_resamples(number, resamples):
    assert (number * resamples > NUMBERS_AT_ONCE) == (number == 5000), "the second case is drawn in parts"
    differences = np.random.default_rng(1).gamma(2.0, size=number) - 1.9
    actual = compare(differences, resamples=resamples, seed=7)
    theirs = bootstrap(
        (differences,), np.mean, n_resamples=resamples, method="percentile", rng=np.random.default_rng(7)
    )
    np.testing.assert_allclose(actual.interval, tuple(theirs.confidence_interval), rtol=1e-12)
    below = np.count_nonzero(theirs.bootstrap_distribution <= 0)
    assert actual.p_value == pytest.approx(min(1, 2 * (min(below, resamples - below) + 1) / (resamples + 1)))
    assert actual.difference == pytest.approx(differences.mean())


def test_equal_systems_do_not_differ():
    actual = compare(np.zeros(40), resamples=200)
    assert (actual.difference, actual.interval, actual.p_value) == (0, (0, 0), 1)


def test_few_images_are_refused():
    with pytest.raises(ValueError, match="5 images"):
        compare(np.ones(5))
    with pytest.raises(ValueError, match=str(MIN_ITEMS - 1)):
        compare(np.ones(MIN_ITEMS - 1))
    assert compare(np.ones(MIN_ITEMS), resamples=20).difference == 1


def test_holm_by_hand():
    """0.01 * 3, then 0.02 * 2, then 0.03 * 1, which must not be below the previous one; no value is above 1."""
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []

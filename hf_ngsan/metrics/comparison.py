"""Paired comparisons of two systems on the same images: bootstrap intervals and p values, and Holm's correction.

```python
compare(scores_of_ng_san - scores_of_san).interval
```
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .evaluation import CaptionMetric

RESAMPLES = 10_000
LEVEL = 0.95
MIN_ITEMS = 20  # with fewer images, intervals are much too narrow
NUMBERS_AT_ONCE = 2**22  # resampled indices per array, 32 MB


@dataclass(frozen=True)
class Comparison:
    """The mean of paired differences, its percentile interval, and the two-sided p value for a mean of 0."""

    difference: float
    interval: tuple[float, float]
    p_value: float


def compare(differences: np.ndarray, resamples: int = RESAMPLES, level: float = LEVEL, seed: int = 0) -> Comparison:
    """Bootstraps the mean of paired differences by resampling images (Efron and Tibshirani 1993, chapter 13).

    The interval is that of `scipy.stats.bootstrap(..., method="percentile")` with the same generator. The p value is
    twice the smaller share of resampled means on either side of 0, with the observed mean counted as one more resample.

    Args:
        differences: `(images,)`, scores of one system minus those of the other; a ValueError for fewer than 20,
            or for values that are not finite.
        resamples, level, seed: number and seed of the resamples, and level of the interval.
    """
    number = len(differences)
    if number < MIN_ITEMS or not np.isfinite(differences).all():
        finite = f"{np.isfinite(differences).sum()} of {number} images have a finite difference of scores"
        raise ValueError(f"A bootstrap needs {MIN_ITEMS} images or more, all with scores; {finite}.")
    random = np.random.default_rng(seed)
    at_once = max(1, NUMBERS_AT_ONCE // number)
    sizes = [min(at_once, resamples - start) for start in range(0, resamples, at_once)]
    means = np.concatenate([differences[random.integers(0, number, (size, number))].mean(1) for size in sizes])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    tail = min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    p_value = min(1.0, 2 * (tail + 1) / (resamples + 1))
    return Comparison(float(np.mean(differences)), (float(low), float(high)), p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p values with the correction of Holm (1979) for multiple tests."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


@dataclass(frozen=True)
class ComparedScore:
    """Corpus values of two systems, the comparison over images, and its p value corrected for all metrics."""

    first: float
    second: float
    comparison: Comparison
    p_holm: float


def compare_captions(
    metric: "CaptionMetric", first: Sequence[str], second: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, ComparedScore]:
    """Compares the captions of two systems with a paired bootstrap over images (see [`compare`]); returns it by metric.

    For BLEU and METEOR, the mean difference over images is not the difference of the corpus values.

    Args:
        metric: such as [`CaptionMetrics`].
        first, second: captions of the two systems, one per image.
        references: list of captions for each image.
    """
    scores = [metric.compute(predictions=texts, references=references, per_image=True) for texts in (first, second)]
    images = [system.pop("per_image") for system in scores]
    comparisons = {name: compare(np.subtract(images[0][name], images[1][name])) for name in scores[0]}
    corrected = holm([comparison.p_value for comparison in comparisons.values()])
    return {
        name: ComparedScore(scores[0][name], scores[1][name], comparison, p_holm)
        for (name, comparison), p_holm in zip(comparisons.items(), corrected, strict=True)
    }

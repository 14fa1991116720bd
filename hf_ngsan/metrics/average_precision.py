"""mAP@R of image-text retrieval, for queries with any number of right answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from .retrieval import as_array

if TYPE_CHECKING:
    import torch


def map_at_r(similarity: np.ndarray | torch.Tensor, positives: Mapping[int, Collection[int]]) -> float:
    """Returns the mean average precision at R (Musgrave et al. 2020), as in ECCV Caption (Chun et al. 2022).

    R is the number of right answers of a query. Its score is the mean over the ranks r = 1, …, R: a right answer at
    rank r counts with the precision of the first r answers, a wrong one with 0.

    Args:
        similarity: array or tensor `(queries, items)`, larger is more similar; of equal items the first comes first.
        positives: the right items of each query; queries that are left out do not count.

    Returns:
        The mean over queries, in percent.

    Raises:
        ValueError: there are no queries, a query has no right item, a query or item does not exist, or a similarity is
            not a number.

    Example:

    ```python
    >>> import numpy as np
    >>> from hf_ngsan.metrics.average_precision import map_at_r
    >>> map_at_r(np.array([[0.9, 0.5, 0.7]]), {0: [0, 1]})  # right at rank 1, wrong at rank 2
    50.0

    ```
    """
    if not positives:
        raise ValueError("positives is empty: give at least one query with its right items.")
    values = as_array(similarity)
    scores = []
    for query, items in positives.items():
        right = np.unique(np.asarray(list(items), dtype=np.int64))
        inside = 0 <= query < len(values) and len(right) and right[0] >= 0 and right[-1] < values.shape[1]
        if not inside:
            raise ValueError(
                f"Query {query} has the right items {right.tolist()!s:.100}; it needs one at least, and both must lie "
                f"within the {values.shape} of similarity."
            )
        row = values[query]
        if np.isnan(row).any():
            raise ValueError(f"similarity holds a value that is not a number, at query {query}.")
        found = np.isin(np.argsort(-row, kind="stable")[: len(right)], right)
        precisions = np.cumsum(found) / np.arange(1, len(found) + 1)
        scores.append(float(np.mean(precisions * found)))
    return 100 * float(np.mean(scores))

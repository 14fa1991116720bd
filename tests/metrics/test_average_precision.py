"""mAP@R against its definition, written out."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_ngsan.metrics.retrieval import map_at_r
from tests.tables import each_row


def by_definition(row: list[float], right: set[int]) -> float:
    order = sorted(range(len(row)), key=lambda item: (-row[item], item))
    precisions = []
    for rank in range(1, len(right) + 1):
        first = order[:rank]
        precision = sum(item in right for item in first) / rank
        precisions.append(precision if first[-1] in right else 0.0)
    return sum(precisions) / len(right)


@given(data=st.data(), queries=st.integers(1, 4), items=st.integers(1, 7))
def test_it_is_the_mean_of_what_the_definition_gives(data, queries, items):
    """Few different values, so that there are many ties."""
    numbers = st.lists(st.integers(0, 3), min_size=items, max_size=items)
    similarity = [data.draw(numbers) for _ in range(queries)]
    chosen = data.draw(st.sets(st.integers(0, queries - 1), min_size=1))
    positives = {query: data.draw(st.sets(st.integers(0, items - 1), min_size=1)) for query in chosen}
    expected = 100 * np.mean([by_definition(similarity[query], positives[query]) for query in chosen])
    array = np.array(similarity, np.float32)
    assert map_at_r(array, positives) == pytest.approx(expected)
    assert map_at_r(torch.from_numpy(array), {query: sorted(items) for query, items in positives.items()}) == (
        pytest.approx(expected)
    )


@each_row("positives", [{}, {0: []}, {0: [2]}, {0: [-1]}, {1: [0]}, {-1: [0]}])
def test_queries_and_items_must_exist(positives):
    with pytest.raises(ValueError):
        map_at_r(np.zeros((1, 2)), positives)


def test_a_similarity_that_is_not_a_number():
    with pytest.raises(ValueError, match="1"):
        map_at_r(np.array([[0.0, 1.0], [np.nan, 0.0]]), {0: [0], 1: [1]})

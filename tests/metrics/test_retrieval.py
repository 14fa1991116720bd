"""Ranks by counting against ranks by sorting."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.metrics.retrieval import retrieval_metrics, retrieval_ranks
from tests.tables import each_row


@st.composite
def similarities(draw, values=5):
    """Few different values, so that there are many ties; captions in any order, one or more per image."""
    images = draw(st.integers(1, 6))
    extra = draw(st.lists(st.integers(0, images - 1), max_size=8))
    caption_images = np.array(draw(st.permutations([*range(images), *extra])))
    numbers = draw(st.lists(st.integers(0, values), min_size=images * len(caption_images),
                            max_size=images * len(caption_images)))  # fmt: skip
    dtype = draw(st.sampled_from([np.float32, np.float64, np.float16, np.int64]))
    return np.array(numbers, dtype=dtype).reshape(images, -1), caption_images


@settings(max_examples=150, deadline=None)
@given(similarities())
def test_ties_by_index_are_those_of_a_stable_sort(retrieval_benchmark, case):
    ranks = retrieval_ranks(*case)
    expected = retrieval_benchmark.ranks_by_sorting(*case, kind="stable")
    assert [r.tolist() for r in ranks] == [r.tolist() for r in expected]


def test_many_images():
    generator = np.random.default_rng(0)
    similarity = generator.normal(size=(600, 1200)).astype(np.float32)  # more than 255 rows rank before some answer
    image_ranks, text_ranks = retrieval_ranks(similarity)
    matching = similarity[np.arange(1200) // 2, np.arange(1200)]
    assert text_ranks.tolist() == (1 + (similarity > matching).sum(0)).tolist()
    assert image_ranks.tolist() == (1 + (similarity > matching.reshape(600, 2).max(1, keepdims=True)).sum(1)).tolist()
    assert text_ranks.max() > 510


def test_a_model_that_finds_everything_equal_is_not_perfect():
    assert retrieval_metrics(np.zeros((100, 500)))["text_to_image_r1"] == 1


def test_metrics():
    similarity = torch.tensor([[9.0, 1, 8, 7], [3, 6, 2, 5]], dtype=torch.bfloat16)  # captions 2 and 3 are of image 1
    metrics = retrieval_metrics(similarity, recall_at=(1, 2))
    assert metrics == {
        **{"image_to_text_r1": 50.0, "image_to_text_r2": 100.0, "text_to_image_r1": 25.0, "text_to_image_r2": 100.0},
        **{"rsum": 275.0, "image_to_text_median_rank": 1.5, "text_to_image_median_rank": 2.0},
    }
    assert set(retrieval_metrics(similarity)) >= {"image_to_text_r10", "text_to_image_r5"}


def test_folds_are_the_mean_of_the_parts():
    generator = np.random.default_rng(1)
    similarity = generator.normal(size=(10, 30))
    caption_images = np.repeat(np.arange(10), 3)
    parts = [retrieval_metrics(similarity[i : i + 2, 3 * i : 3 * i + 6]) for i in range(0, 10, 2)]
    folded = retrieval_metrics(similarity, folds=5)
    assert folded == pytest.approx({name: np.mean([part[name] for part in parts]) for name in folded})
    shuffled = generator.permutation(30)
    again = retrieval_metrics(similarity[:, shuffled], caption_images[shuffled], folds=5)
    assert again == pytest.approx(folded)


@each_row(
    ("similarity", "options", "named"),
    [
        (np.zeros((2, 5)), {}, "caption_images"),
        (np.array([[1.0, np.nan]]), {}, "image 0, caption 1"),
        (np.zeros((2, 2)), {"caption_images": [0, 0]}, "Image 1"),
        (np.zeros((2, 2)), {"caption_images": [0, 2]}, "caption_images .*1"),
        (np.zeros((3, 3)), {"folds": 2}, "3 images .*2 "),
    ],
)
def test_bad_input_is_named(similarity, options, named):
    with pytest.raises(ValueError, match=named):
        retrieval_metrics(similarity, **options)

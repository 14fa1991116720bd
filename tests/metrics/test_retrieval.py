"""Ranks by counting against ranks by sorting each row."""

import numpy as np
import pytest

from hf_ngsan.metrics.retrieval import retrieval_metrics, retrieval_ranks


def sorted_ranks(similarity, owners):
    order = np.argsort(-similarity, axis=1, kind="stable")
    images = [1 + min(np.flatnonzero(owners[row] == image)) for image, row in enumerate(order)]
    order = np.argsort(-similarity.T, axis=1, kind="stable")
    texts = [1 + int(np.flatnonzero(row == owners[text])[0]) for text, row in enumerate(order)]
    return images, texts


@pytest.mark.parametrize("with_ties", [False, True])
def test_ranks_are_those_of_a_stable_sort(with_ties):
    generator = np.random.default_rng(0)
    similarity = generator.random((20, 100)).astype(np.float32)
    if with_ties:
        similarity = similarity.round(1)
    images, texts = retrieval_ranks(similarity)
    expected_images, expected_texts = sorted_ranks(similarity, np.repeat(np.arange(20), 5))
    assert list(images) == expected_images
    assert list(texts) == expected_texts


def test_recalls_of_a_perfect_and_a_folded_matrix():
    similarity = np.kron(np.eye(10), np.ones((1, 5)))
    result = retrieval_metrics(similarity)
    assert result["image_to_text_r1"] == result["text_to_image_r1"] == 100
    assert result["rsum"] == 600
    assert result["image_to_text_median_rank"] == 1
    assert retrieval_metrics(similarity, folds=5)["rsum"] == 600
    with pytest.raises(ValueError, match="folds"):
        retrieval_metrics(similarity, folds=3)


def test_nan_is_refused():
    with pytest.raises(ValueError):
        retrieval_metrics(np.full((2, 10), np.nan))

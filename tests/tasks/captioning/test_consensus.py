"""Consensus weights: captions that agree with the others of their image weigh more."""

import pytest

from hf_ngsan.metrics import CiderD, DocumentFrequency
from hf_ngsan.tasks.captioning.task import consensus_weights

CAPTIONS = [
    ["a man rides a horse", "a man rides a brown horse", "what a lovely day this is"],
    ["two dogs play in the snow", "two dogs in the snow"],
    ["a red bus"],
]


def test_weights_are_each_captions_cider_d_over_the_mean_of_its_image():
    frequency = DocumentFrequency.from_captions(CAPTIONS)
    metric = CiderD(document_frequency=frequency)
    scores = []
    for index, caption in enumerate(CAPTIONS[0]):
        others = CAPTIONS[0][:index] + CAPTIONS[0][index + 1 :]
        scores.append(metric.compute(predictions=[caption], references=[others])["cider_d"] + 1e-3)
    mean = sum(scores) / 3
    expected = [min(max((score / mean) ** 2, 0.05), 3.0) for score in scores]
    assert consensus_weights(CAPTIONS, power=2)[0] == pytest.approx(expected)


def test_the_caption_that_nobody_shares_weighs_least():
    weights = consensus_weights(CAPTIONS)
    assert weights[0][2] < 0.1 < 0.9 < min(weights[0][:2])
    assert weights[1] == pytest.approx([1, 1], abs=0.2)
    assert weights[2] == [1.0]


def test_power_zero_weighs_all_the_same():
    assert consensus_weights(CAPTIONS, power=0) == [[1.0] * 3, [1.0] * 2, [1.0]]

"""Agreement with people: Kendall's tau with the judgements of Flickr8k, as published."""

import os
from pathlib import Path

import pytest

from hf_ngsan.metrics import CaptionMetrics
from tests.metrics.conftest import load_benchmark

JUDGEMENTS = Path(os.environ.get("HF_NGSAN_TEST_DATA", "absent"), "data", "flickr8k", "human_judgements")


@pytest.mark.slow
@pytest.mark.skipif(not JUDGEMENTS.is_dir(), reason="HF_NGSAN_TEST_DATA names no folder with data/flickr8k")
@pytest.mark.parametrize(("name", "pairs"), [("experts", 5664), ("crowd", 47830)])
def test_agreement_is_the_published_one(name, pairs):
    script = load_benchmark("human_judgements")
    group = script.GROUPS[name]
    number, actual = script.correlations(JUDGEMENTS, group, CaptionMetrics(metrics=("bleu", "rouge_l", "cider_d")))
    assert number == pairs
    assert set(actual) == {"bleu_1", "bleu_4", "rouge_l", "cider_d"}
    for metric, tau in actual.items():
        assert round(tau, 1) == group.published[metric]

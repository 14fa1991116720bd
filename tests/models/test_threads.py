"""Threads share a captioner, its processor and their pipeline, as those of a server do."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hf_ngsan.loading.pipelines import CaptioningPipeline
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor


@pytest.fixture
def frequent_switches():
    """Threads take turns after microseconds."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(found, dict):
        assert found.keys() == expected.keys()
        for name in found:
            assert_same(found[name], expected[name])
    elif isinstance(found, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(found, np.ndarray):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    else:
        assert found == expected


def test_pipeline_answers_threads_as_it_answers_one(frequent_switches):
    pipe = CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor())
    words = sorted(set(pipe.processor.tokenizer.get_vocab()) - set(pipe.processor.tokenizer.all_special_tokens))
    calls = [
        (PHOTOS[0], {}),
        (PHOTOS[1], {"return_attention": True}),
        (PHOTOS[2], {"text": words[0]}),
        (PHOTOS[3], {"text": words[1], "return_attention": True, "num_beams": 3}),
        ([{"image": PHOTOS[0], "text": words[0]}, {"image": PHOTOS[1], "text": f"{words[1]} {words[2]}"}], {}),
        (PHOTOS, {"batch_size": 3, "return_attention": True, "attention_side": 16}),
    ]
    expected = [pipe(images, **options) for images, options in calls]
    with ThreadPoolExecutor(6) as threads:
        answers = [threads.submit(pipe, images, **options) for images, options in calls * 8]
        for index, answer in enumerate(answers):
            found = answer.result()
            for one in (found, expected[index % len(calls)]):
                for item in one if isinstance(one[0], list) else [one]:
                    item[0].pop("image", None)
            assert_same(found, expected[index % len(calls)])
    assert pipe.model.config._attn_implementation == "sdpa"

"""Threads share a captioner, its processor and their pipeline, as in a server."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hf_ngsan.loading.pipelines import CaptioningPipeline
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor


def test_pipeline_answers_threads_as_it_answers_one():
    pipe = CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor())
    calls = [
        ([PHOTOS[0]], {}),
        ([PHOTOS[1]], {"return_attention": True}),
        ([PHOTOS[2]], {"text": "a"}),
        ([PHOTOS[3]], {"text": "two", "return_attention": True, "num_beams": 3}),
        ([{"image": PHOTOS[0], "text": "a"}, {"image": PHOTOS[1], "text": "two red"}], {}),
        (PHOTOS, {"batch_size": 3, "return_attention": True, "attention_side": 16}),
    ]

    def answers(call) -> list[tuple]:
        actual = pipe(call[0], **call[1])
        return [(item["generated_text"], item.get("words"), item.get("attention", np.zeros(0))) for [item] in actual]

    expected = [answers(call) for call in calls]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads switch after microseconds
    try:
        with ThreadPoolExecutor(6) as threads:
            actual = list(threads.map(answers, calls * 8))
    finally:
        sys.setswitchinterval(interval)
    for items, right in zip(actual, expected * 8, strict=True):
        assert [item[:2] for item in items] == [item[:2] for item in right]
        for item, other in zip(items, right, strict=True):
            np.testing.assert_allclose(item[2], other[2], atol=1e-5)
    assert pipe.model.config._attn_implementation == "sdpa"

"""Agreement with people: tau-c of the experts' judgements of Flickr8k, as published."""

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

from hf_ngsan.metrics import CaptionMetrics

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "human_judgements.py"
JUDGEMENTS = Path(os.environ.get("HF_NGSAN_TEST_DATA", "absent"), "data", "flickr8k", "human_judgements")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("human_judgements", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not JUDGEMENTS.is_dir(), reason="HF_NGSAN_TEST_DATA names no folder with data/flickr8k")
def test_agreement_with_experts_is_the_published_one(script):
    counting = script.Counting("experts", "c")
    number, found = script.correlations(JUDGEMENTS, counting, CaptionMetrics(metrics=("bleu", "rouge_l", "cider_d")))
    assert number == 5664
    assert {name: round(value, 1) for name, value in found.items()} == {
        "bleu_1": 32.3,
        "bleu_4": 30.8,
        "rouge_l": 32.3,
        "cider_d": 43.9,
    }


def test_own_captions_are_left_out_or_compared_with_the_others(script, tmp_path):
    """Of two images with two captions each: the better caption is the own one, whose twin is not a reference."""
    captions = {"a.jpg": ["a dog runs", "a brown dog"], "b.jpg": ["a red car", "two cars stand here"]}
    (tmp_path / "captions.json").write_text(json.dumps(captions))
    rows = [("a.jpg", "a.jpg#0", 1.0), ("a.jpg", "b.jpg#1", 0.0), ("b.jpg", "a.jpg#1", 0.5)]
    (tmp_path / "CrowdFlowerAnnotations.txt").write_text("".join(f"{a}\t{b}\t{c}\t3\t0\n" for a, b, c in rows))
    judged = script.read_judgements(tmp_path, "crowd")
    assert [one.is_own for one in judged] == [True, False, False]
    given = {}

    class Recorder:
        def compute(self, predictions, references, per_image):
            given.update(zip(predictions, references, strict=True))
            return {"per_image": {"bleu_1": [1.0, 0.0, 0.5][-len(predictions) :]}}

    own = script.Counting("crowd", "b", own=True, left_out=True)
    assert script.correlations(tmp_path, own, Recorder()) == (3, {"bleu_1": pytest.approx(100)})
    assert given["a dog runs"] == ["a brown dog"]
    assert given["two cars stand here"] == captions["a.jpg"]
    assert script.correlations(tmp_path, script.Counting("crowd", "b"), Recorder())[0] == 2

"""Agreement with people: Kendall's tau with the judgements of Flickr8k, as published."""

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

from hf_ngsan.metrics import CaptionMetrics
from tests.tables import each_row

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "human_judgements.py"
JUDGEMENTS = Path(os.environ.get("HF_NGSAN_TEST_DATA", "absent"), "data", "flickr8k", "human_judgements")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("human_judgements", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.skipif(not JUDGEMENTS.is_dir(), reason="HF_NGSAN_TEST_DATA names no folder with data/flickr8k")
@pytest.mark.parametrize(("name", "pairs"), [("experts", 5664), ("crowd", 47830)])
def test_agreement_is_the_published_one(script, name, pairs):
    group = script.GROUPS[name]
    number, found = script.correlations(JUDGEMENTS, group, CaptionMetrics(metrics=("bleu", "rouge_l", "cider_d")))
    assert number == pairs
    assert set(found) == {"bleu_1", "bleu_4", "rouge_l", "cider_d"}
    for metric, tau in found.items():
        assert round(tau, 1) == group.published[metric]


@each_row(
    ("name", "columns", "expected"),
    [
        ("experts", "1\t1\t1", {"two cars stand here": "ab", "a brown dog": "cd"}),
        ("crowd", "1.0\t3\t0", {"a dog runs": "b", "two cars stand here": "b", "a brown dog": "cd"}),
    ],
)
def test_own_captions_are_left_out_or_are_no_references(script, tmp_path, name, columns, expected):
    texts = {"a": "a dog runs", "b": "a brown dog", "c": "a red car", "d": "two cars stand here"}
    captions = {"one.jpg": [texts["a"], texts["b"]], "two.jpg": [texts["c"], texts["d"]]}
    (tmp_path / "captions.json").write_text(json.dumps(captions))
    pairs = [("one.jpg", "one.jpg#0"), ("one.jpg", "two.jpg#1"), ("two.jpg", "one.jpg#1")]
    group = script.GROUPS[name]
    (tmp_path / group.file).write_text("".join(f"{image}\t{caption}\t{columns}\n" for image, caption in pairs))
    given = {}

    class Recorder:
        def compute(self, predictions, references, per_image):
            given.update(zip(predictions, references, strict=True))
            return {"per_image": {}}

    number, _ = script.correlations(tmp_path, group, Recorder())
    assert number == len(expected)
    assert given == {caption: [texts[letter] for letter in letters] for caption, letters in expected.items()}

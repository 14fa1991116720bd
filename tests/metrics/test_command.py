"""`hf-ngsan score`, and what bad input says."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.cli import main
from hf_ngsan.metrics import CaptionMetrics, CiderD, PTBTokenizer
from hf_ngsan.metrics.diagnostics import caption_diagnostics

RESULTS = [{"image_id": 1, "caption": "a man rides a horse"}, {"image_id": 2, "caption": "two dogs"}]
REFERENCES = {
    "images": [{"id": 1}, {"id": 2}],
    "annotations": [
        {"id": 1, "image_id": 1, "caption": "A man on a horse."},
        {"id": 2, "image_id": 2, "caption": "Two dogs in the snow."},
    ],
}


@pytest.fixture
def files(tmp_path):
    results, references = tmp_path / "results.json", tmp_path / "captions.json"
    results.write_text(json.dumps(RESULTS))
    references.write_text(json.dumps(REFERENCES))
    return results, references


def score(results, references, *more):
    return main(["score", "--predictions", str(results), "--references", str(references), *map(str, more)])


def test_score_prints_and_writes_what_compute_returns(files, tmp_path, capsys):
    assert score(*files, "--per-image", tmp_path / "images.json") == 0
    expected = CaptionMetrics().compute(
        predictions=[row["caption"] for row in RESULTS],
        references=[[row["caption"]] for row in REFERENCES["annotations"]],
        per_image=True,
    )
    assert f"cider_d  {expected['cider_d']:.4f}" in capsys.readouterr().out
    rows = json.loads((tmp_path / "images.json").read_text())
    assert [row["image_id"] for row in rows] == [1, 2]
    assert [row["rouge_l"] for row in rows] == pytest.approx(expected["per_image"]["rouge_l"])


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([*RESULTS, RESULTS[0]], "1"),
        ([*RESULTS, {"image_id": 9, "caption": "x"}], "9"),
        ([{"image_id": 1, "caption": 5}], "caption"),
        ([{"image_id": 1}], "caption"),
        ({"image_id": 1}, "list"),
    ],
)
def test_bad_result_files_are_one_sentence_and_exit_code_2(files, capsys, results, says):
    files[0].write_text(json.dumps(results))
    assert score(*files) == 2
    message = capsys.readouterr().err
    assert message.startswith("hf-ngsan: error:") and message.count("\n") == 1
    assert says in message and str(files[0]) in message


def test_files_that_cannot_be_read(files, tmp_path, capsys):
    assert score(tmp_path / "absent.json", files[1]) == 2
    files[1].write_text("{")
    assert score(*files) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_bad_captions_are_refused():
    metrics = CaptionMetrics()
    with pytest.raises(ValueError):
        metrics.compute(predictions=["a", "b"], references=[["a"]])
    with pytest.raises(ValueError):
        metrics.compute(predictions=["a", "b"], references=[["a"], []])
    with pytest.raises(ValueError):
        metrics.compute(predictions=["a", None], references=[["a"], ["b"]])
    with pytest.raises(ValueError, match=r"document.frequenc"):
        CiderD().compute(predictions=["a man"], references=[["a man", "a dog"]])


def test_empty_predictions_score_zero():
    result = CaptionMetrics().compute(predictions=["", "..."], references=[["a man"], ["two dogs play"]])
    assert set(result.values()) == {0.0}


def test_diagnostics_tell_broken_captions():
    result = caption_diagnostics(["a man with a", "a dog dog runs", "a cat sleeps"])
    assert result["bad_endings"] == pytest.approx(1 / 3)
    assert result["stutter"] == pytest.approx(1 / 3)
    assert result["length_histogram"] == {3: 1, 4: 2}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(max_size=60), min_size=1, max_size=5))
def test_any_text_can_be_tokenized(captions):
    tokenized = PTBTokenizer().tokenize(captions)
    assert len(tokenized) == len(captions)
    assert all(isinstance(caption, str) and "\n" not in caption for caption in tokenized)

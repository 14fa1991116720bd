"""The metrics against slow implementations of their definitions, and as `evaluate` modules."""

import math
from itertools import chain

import evaluate
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.metrics import (
    Bleu,
    CaptionMetric,
    CaptionMetrics,
    Cider,
    CiderD,
    DocumentFrequency,
    PTBTokenizer,
    RougeL,
    register_metric,
)
from hf_ngsan.metrics.registry import METRICS
from tests.tables import each_row

from . import plain

PREDICTIONS = ["a cat on a mat", "Two dogs run.", "a man rides a horse"]
REFERENCES = [
    ["A cat sits on a mat.", "there is a cat on the mat"],
    ["two dogs are running", "Dogs run on grass!", "two dogs run"],
    ["a woman holding an umbrella"],
]

CAPTION = st.lists(st.sampled_from(["a", "the", "man", "dog", "rides", "on", "big"]), max_size=9).map(" ".join)
CORPUS = st.lists(st.tuples(CAPTION, st.lists(CAPTION, min_size=1, max_size=4)), min_size=2, max_size=5)


@settings(max_examples=80, deadline=None)
@given(CORPUS)
def test_values_equal_slow_implementations(cider_benchmark, corpus):
    predictions, references = [p for p, _ in corpus], [r for _, r in corpus]
    scores = CaptionMetrics(tokenizer=None).compute(predictions=predictions, references=references, per_image=True)
    images = scores.pop("per_image")
    assert not any(math.isnan(value) for value in chain(scores.values(), *images.values()))

    total, each = plain.bleu(predictions, references)
    for n in range(4):
        assert scores[f"bleu_{n + 1}"] == pytest.approx(total[n], abs=1e-12)
        assert images[f"bleu_{n + 1}"] == pytest.approx([image[n] for image in each], abs=1e-12)

    expected = [plain.rouge_l(p, rs) for p, rs in zip(predictions, references, strict=True)]
    assert images["rouge_l"] == pytest.approx(expected, abs=1e-12)

    words = [[reference.split() for reference in image] for image in references]
    frequencies = plain.document_frequencies(words)
    dictionary = cider_benchmark.PlainCiderD(frequencies, len(words))
    expected = [dictionary.score(p.split(), rs) for p, rs in zip(predictions, words, strict=True)]
    assert images["cider_d"] == pytest.approx(expected, abs=1e-12)
    expected = [plain.cider(p.split(), rs, frequencies, len(words)) for p, rs in zip(predictions, words, strict=True)]
    assert images["cider"] == pytest.approx(expected, abs=1e-12)
    for name in ("rouge_l", "cider_d", "cider"):
        assert scores[name] == pytest.approx(np.mean(images[name]), abs=1e-12)


def test_the_two_ciders_are_different_numbers():
    metrics, references = CaptionMetrics(tokenizer=None), [["a b c d"], ["e f g h"]]
    same = metrics.compute(predictions=["a b c d", "e f g h"], references=references)
    assert same["cider_d"] == pytest.approx(10)  # ten times the mean of four cosines
    assert same["cider"] == pytest.approx(10)
    assert next(iter(same)) == "cider_d", "the number that papers call CIDEr comes first"
    longer = metrics.compute(predictions=["a b c d " * 3, "e f g h"], references=references)
    assert longer["cider_d"] < 8 < longer["cider"]  # clipping and the length penalty


def test_bleu_is_not_a_mean_and_takes_the_closest_reference():
    references = [["a b c x x x", "y y y y"], ["d"]]
    scores = Bleu(tokenizer=None).compute(predictions=["a b c", "d"], references=references, per_image=True)
    assert scores["per_image"]["bleu_1"] == pytest.approx([math.exp(1 - 4 / 3), 1])
    assert scores["bleu_1"] == pytest.approx(math.exp(1 - 5 / 4))


@each_row("empty", ["", "   ", "...", "\U0001f600", "\n"])
def test_empty_predictions_score_zero(empty):
    scores = CaptionMetrics().compute(predictions=[empty, empty], references=[["a cat", "."], ["..."]], per_image=True)
    images = scores.pop("per_image")
    assert set(scores.values()) == {0}
    assert all(values == [0, 0] for values in images.values())


def test_one_image_needs_document_frequencies():
    item = {"predictions": ["a cat"], "references": [["a cat", "a dog"]]}
    for metric in (CaptionMetrics(), CiderD(), Cider()):
        with pytest.raises(ValueError, match="document_frequency"):
            metric.compute(**item)
    frequency = DocumentFrequency.from_captions([["a cat"], ["a dog"], ["the sea"]])
    assert CiderD(frequency).compute(**item)["cider_d"] > 0
    assert Bleu().compute(**item)["bleu_1"] == pytest.approx(1)


def test_other_document_frequencies_change_cider_only():
    frequency = DocumentFrequency.from_captions([["a cat on a mat", "a cat"], ["two dogs"], ["a mat"], ["the sea"]])
    other = CaptionMetrics(frequency).compute(predictions=PREDICTIONS, references=REFERENCES)
    metric_scores = CaptionMetrics().compute(predictions=PREDICTIONS, references=REFERENCES)
    assert {name for name in metric_scores if metric_scores[name] != other[name]} == {"cider_d", "cider"}
    with pytest.raises(ValueError, match="token ids"):
        metric = CiderD(DocumentFrequency.from_captions([[[1, 2]], [[3]]]))
        metric.compute(predictions=PREDICTIONS, references=REFERENCES)


def test_they_are_evaluate_modules():
    for metric in (Bleu, RougeL, Cider, CiderD, CaptionMetrics):
        scores = metric().compute(predictions=PREDICTIONS, references=REFERENCES, per_image=True)
        assert set(scores["per_image"]) == set(scores) - {"per_image"}, metric
        assert all(len(values) == 3 for values in scores["per_image"].values()), metric

        batches = metric()
        assert isinstance(batches, evaluate.Metric)
        for _ in range(2):  # the second round starts without state
            batches.add_batch(predictions=PREDICTIONS[:2], references=REFERENCES[:2])
            batches.add(prediction=PREDICTIONS[2], reference=REFERENCES[2])
            assert batches.compute(per_image=True) == scores, metric


def test_they_combine():
    combined = evaluate.combine([Bleu(), CiderD()]).compute(predictions=PREDICTIONS, references=REFERENCES)
    expected = CaptionMetrics(metrics=["bleu", "cider_d"]).compute(predictions=PREDICTIONS, references=REFERENCES)
    assert combined == expected


def test_the_choice_of_metrics():
    assert set(CaptionMetrics(metrics=["rouge_l"]).compute(predictions=["a"], references=[["a"]])) == {"rouge_l"}
    with pytest.raises(ValueError, match=r"'CIDEr'.*bleu"):
        CaptionMetrics(metrics=["CIDEr"])
    with pytest.raises(ValueError, match="moses"):
        CaptionMetrics(tokenizer="moses").compute(predictions=PREDICTIONS, references=REFERENCES)


def test_a_metric_of_the_users_is_one_of_them_and_each_cites_its_paper(monkeypatch):
    class Words(CaptionMetric):
        def score_corpus(self, corpus):
            lengths = np.array([len(caption.split()) for caption in corpus.predictions])
            return {"words": lengths.mean()}, {"words": lengths}

    monkeypatch.setattr("hf_ngsan.metrics.registry.METRICS", dict(METRICS))
    register_metric("words", Words)
    metric = CaptionMetrics(metrics=["words", "rouge_l"])
    scores = metric.compute(predictions=PREDICTIONS, references=REFERENCES, per_image=True)
    assert scores["per_image"]["words"] == [5, 3, 5] and scores["words"] == pytest.approx(13 / 3)
    assert len({kind().citation for kind in (Bleu, RougeL, CiderD)}) == 3 and RougeL().citation in metric.citation
    with pytest.raises(ValueError, match="words"):
        register_metric("words", Bleu)


@each_row(
    ("predictions", "references", "named"),
    [
        (["a"], [["a"], ["b"]], "1 predictions.* 2 "),
        (["a", "b"], [["a"], []], "image 1"),
        (["a", "b"], [["a"], "b"], "image 1"),
    ],
)
def test_bad_input_is_named(predictions, references, named):
    with pytest.raises(ValueError, match=named):
        CaptionMetrics().compute(predictions=predictions, references=references)


@each_row("name", ["human", "shuffled", "noisy"])
def test_reference_values(metric_reference, cider_benchmark, name):
    expected = metric_reference.read(f"scores_val_{name}")
    references = metric_reference.captions("val_human_refs" if name == "human" else "val")
    results = {row["image_id"]: row["caption"] for row in metric_reference.read(f"predictions_val_{name}")}
    train = DocumentFrequency.from_captions(metric_reference.captions("train").values())
    batch = {"predictions": [results[i] for i in references], "references": list(references.values())}
    metric_scores = CaptionMetrics().compute(**batch, per_image=True)
    other = CiderD(train).compute(**batch, per_image=True)
    names = {f"Bleu_{n}": f"bleu_{n}" for n in range(1, 5)}
    names |= {"ROUGE_L": "rouge_l", "CIDEr": "cider_d", "CIDErD_refs_df": "cider_d", "CIDErD_train_df": "cider_d"}
    for official, ours in names.items():
        scores = other if official == "CIDErD_train_df" else metric_scores
        assert scores[ours] == pytest.approx(expected["corpus"][official], abs=1e-9)
        values = [expected["per_image"][str(image)][official] for image in references]
        assert scores["per_image"][ours] == pytest.approx(values, abs=1e-9)

    # The benchmark's dictionary implementation gives the same result, so its ratio is a fair comparison.
    dictionary = cider_benchmark.PlainCiderD(train.to_dict(), train.num_documents)
    tokenizer = PTBTokenizer(joined=True)
    for image, caption in list(results.items())[:40]:
        words = [text.split() for text in tokenizer.tokenize([caption, *references[image]])]
        value = expected["per_image"][str(image)]["CIDErD_train_df"]
        assert dictionary.score(words[0], words[1:]) == pytest.approx(value, abs=1e-9)

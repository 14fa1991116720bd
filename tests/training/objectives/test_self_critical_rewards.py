"""Rewards on token ids against the metrics on text, their independence of the batch, and all errors."""

import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.data import build_tokenizer
from hf_ngsan.metrics import Bleu, CiderD, DocumentFrequency, Meteor
from hf_ngsan.training.objectives.self_critical_rewards import CaptionRewards, RewardError
from tests.tables import each_row

REFERENCES = [
    ["a cat sits on a red mat", "the cat sleeps on a mat"],
    ["two dogs run on the grass", "two brown dogs play", "dogs run"],
    ["a man rides a brown horse"],
    ["a cat and a dog on the grass", "a dog sits on the red grass"],
]
TOKENIZER = build_tokenizer([text for texts in REFERENCES for text in texts], min_count=1)
PAD, START, END, UNKNOWN = 0, 1, 2, 3
SAMPLES = [
    *[(0, "a cat sits on a mat"), (3, "a dog sits on the red grass"), (1, "two dogs run"), (0, "a cat sits on a mat")],
    *[(2, "grass"), (1, "two brown dogs run on the red grass and a mat")],
]


def encode(captions, after=PAD):
    ids = [[*words, END] for words in TOKENIZER(captions, add_special_tokens=False)["input_ids"]]
    width = max(map(len, ids)) + 1
    return torch.tensor([words + [after] * (width - len(words)) for words in ids])


def text_scores(metric, samples=SAMPLES, end=" </s>"):
    """Per-caption scores of a metric on text in which the end token is a word."""
    predictions = [caption + end for _, caption in samples]
    references = [[text + end for text in REFERENCES[row]] for row, _ in samples]
    scores = metric.compute(predictions=predictions, references=references, per_image=True)["per_image"]
    return next(values for name, values in scores.items() if name in ("cider_d", "bleu_4"))


def cider_d_on_text(end=" </s>"):
    texts = [[text + end for text in image] for image in REFERENCES]
    return CiderD(DocumentFrequency.from_captions(texts, tokenizer=None), tokenizer=None)


def brevity(captions, references):
    return [1 / (1 + len(caption.split())) for caption in captions]


def sample_batch(samples=SAMPLES):
    return encode([caption for _, caption in samples]), torch.tensor([row for row, _ in samples])


@each_row("name", ["cider_d", "bleu_4"])
def test_without_the_end_token_a_reward_is_the_metric_on_plain_text(name):
    metric = cider_d_on_text(end="") if name == "cider_d" else Bleu(tokenizer=None)
    expected = text_scores(metric, end="")
    rewards = CaptionRewards(REFERENCES, TOKENIZER, {name: 1.0}, end_token=False)
    samples, rows = sample_batch()
    np.testing.assert_allclose(rewards(samples, rows).numpy(), expected, rtol=1e-6)
    broken_off = samples.masked_fill(samples == END, PAD)
    torch.testing.assert_close(rewards(broken_off, rows), rewards(samples, rows))


def test_the_total_is_the_weighted_sum_of_the_parts():
    rewards = CaptionRewards(REFERENCES, TOKENIZER, {"cider_d": 0.5, "bleu_4": -2.0}, {"mine:brevity": (brevity, 0.3)})
    parts = rewards.parts(*sample_batch())
    assert list(parts) == ["cider_d", "bleu_4", "mine:brevity"]
    expected = 0.5 * parts["cider_d"] - 2 * parts["bleu_4"] + 0.3 * parts["mine:brevity"]
    torch.testing.assert_close(rewards(*sample_batch()), expected.float())
    assert parts["mine:brevity"].tolist() == [1 / (1 + len(caption.split())) for _, caption in SAMPLES]


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(UNKNOWN, len(TOKENIZER) - 1), max_size=9)), min_size=1, max_size=6
)


WORDS = [word for word in TOKENIZER.get_vocab() if word not in TOKENIZER.all_special_tokens]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.one_of(TEXTS, st.sampled_from([text for texts in REFERENCES for text in texts]))
        ),
        min_size=1,
    )
)
def test_any_captions_score_as_on_text(samples):
    parts = CaptionRewards(REFERENCES, TOKENIZER, {"cider_d": 1.0, "bleu_4": 1.0}).parts(*sample_batch(samples))
    np.testing.assert_allclose(parts["cider_d"].numpy(), text_scores(cider_d_on_text(), samples), atol=1e-9)
    np.testing.assert_allclose(parts["bleu_4"].numpy(), text_scores(Bleu(tokenizer=None), samples), atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.data())
def test_nothing_after_the_end_matters_nor_the_company_of_other_captions(samples, data):
    rewards = CaptionRewards(
        REFERENCES, TOKENIZER, {"cider_d": 1.0, "bleu_4": 1.0}, {"length": (lambda c, r: [len(t) for t in c], 0.1)}
    )
    width = max(len(words) for _, words in samples) + 3
    anything = st.one_of(st.integers(0, len(TOKENIZER) - 1), st.just(-100))
    images = torch.tensor([row for row, _ in samples])

    def batch(fill):
        return torch.tensor([[*words, END, *fill(width - len(words) - 1)] for _, words in samples])

    plain = rewards(batch(lambda n: [PAD] * n), images)
    noisy = rewards(batch(lambda n: data.draw(st.lists(anything, min_size=n, max_size=n))), images)
    torch.testing.assert_close(noisy, plain)
    order = torch.tensor(data.draw(st.permutations(range(len(samples)))))
    torch.testing.assert_close(rewards(batch(lambda n: [PAD] * n)[order], images[order]), plain[order])
    alone = torch.cat([rewards(torch.tensor([[*words, END]]), torch.tensor([row])) for row, words in samples])
    torch.testing.assert_close(alone, plain)


def test_a_caption_that_breaks_off_is_worth_less_and_long_references_are_whole():
    ids = encode(REFERENCES[2])
    for name in ("cider_d", "bleu_4"):
        rewards = CaptionRewards(REFERENCES, TOKENIZER, {name: 1.0})
        assert rewards(ids.masked_fill(ids == END, PAD), torch.tensor([2])) < rewards(ids, torch.tensor([2]))
    long = " ".join(["a cat on a mat"] * 20)
    rewards = CaptionRewards([[long, "", " ... "], *REFERENCES], TOKENIZER, {"cider_d": 1.0})
    assert rewards(encode([long]), torch.tensor([0])).item() == pytest.approx(10)


@each_row("row", [[END, PAD, PAD], [END, 5, 6], [PAD, PAD, PAD], [START, END, 7]])
def test_an_empty_sample_is_worth_nothing(row):
    seen = []
    rewards = CaptionRewards(
        REFERENCES,
        TOKENIZER,
        {"cider_d": 1.0, "bleu_4": 1.0},
        {"mine": (lambda captions, references: seen.extend(captions) or [0.5] * len(captions), 1.0)},
    )
    parts = rewards.parts(torch.tensor([row, [END, 9, 9]]), torch.tensor([0, 1]))
    assert {name: values.tolist() for name, values in parts.items()} == {
        "cider_d": [0, 0],
        "bleu_4": [0, 0],
        "mine": [0.5, 0.5],
    }
    assert seen == ["", ""]


def test_an_unknown_word_matches_nothing():
    tokenizer = build_tokenizer([text for texts in REFERENCES for text in texts], min_count=2)
    unknown = tokenizer.unk_token_id
    ids = torch.tensor([[*tokenizer("two", add_special_tokens=False)["input_ids"], unknown, END]])
    (reference,) = tokenizer(["two zebras"], add_special_tokens=False)["input_ids"]
    assert reference == ids[0, :-1].tolist()
    rewards = CaptionRewards([["two zebras"], *REFERENCES], tokenizer, {"bleu_4": 1.0, "cider_d": 1.0})
    parts = rewards.parts(ids, torch.tensor([0]))
    assert parts["bleu_4"] < 0.01 and parts["cider_d"] < 5
    assert parts["cider_d"] > 0  # "two" does match


def test_functions_get_text_and_the_references_of_each_caption():
    got = {}

    def keep(captions, references):
        got.update(captions=list(captions), references=[list(texts) for texts in references])
        captions.clear()
        references[0].clear()  # changes that a function makes to its lists have no effect elsewhere
        return [1.0] * len(SAMPLES)

    rewards = CaptionRewards(REFERENCES, TOKENIZER, {}, {"one": (keep, 1.0), "two": (brevity, 1.0)})
    for _ in range(2):
        parts = rewards.parts(encode([caption for _, caption in SAMPLES], after=7), sample_batch()[1])
        assert got["captions"] == [caption for _, caption in SAMPLES]
        assert got["references"] == [REFERENCES[row] for row, _ in SAMPLES]
        assert parts["two"].shape == (len(SAMPLES),)


@each_row("values", [[1.0, math.nan], torch.tensor([-math.inf, 0]), [1e300, 0], [1.0], None])
def test_a_function_must_return_a_finite_number_for_each_caption(values):
    rewards = CaptionRewards(REFERENCES, TOKENIZER, {"cider_d": 1.0}, {"mine:f": (lambda c, r: values, 1.0)})
    with pytest.raises(RewardError, match="mine:f"):
        rewards(encode(["a cat", "two dogs"]), torch.tensor([0, 1]))


@each_row(
    ("changed", "named"),
    [
        ({"weights": {}}, "all 0"),
        ({"weights": {"cider": 1.0}}, "'cider'"),
        ({"functions": {"mine": (brevity, math.inf)}}, "inf"),
        ({"functions": {"bleu_4": (brevity, 1.0)}}, "'bleu_4'"),
        ({"references": [["a cat"], ["a dog"], ["...", ""]]}, "Row 2"),
    ],
)
def test_rewards_that_cannot_be_computed(changed, named):
    settings = {"references": REFERENCES, "tokenizer": TOKENIZER, "weights": {"cider_d": 1.0}, **changed}
    with pytest.raises(RewardError, match=named):
        CaptionRewards(**settings)(*sample_batch())


def test_the_dual_encoder_of_a_reward_works_on_the_device_of_the_samples():
    reward = Mock(return_value=torch.ones(len(SAMPLES), dtype=torch.float64))
    samples, rows = sample_batch()
    assert CaptionRewards(REFERENCES, TOKENIZER, {"clip_score": 0.5}, clip_score=reward)(samples, rows)[0] == 0.5
    reward.metric.encoder.model.to.assert_called_once_with(samples.device)


def test_meteor_is_that_of_the_metric(small_meteor):
    rewards = CaptionRewards(REFERENCES, TOKENIZER, {"cider_d": 1.0, "meteor": 0.5})
    images = torch.tensor([image for image, _ in SAMPLES])
    samples = torch.tensor(TOKENIZER([text for _, text in SAMPLES], padding=True)["input_ids"])
    expected = Meteor().compute(
        predictions=[text for _, text in SAMPLES],
        references=[REFERENCES[image] for image, _ in SAMPLES],
        per_image=True,
    )["per_image"]["meteor"]
    parts = rewards.parts(samples, images)
    assert parts["meteor"].tolist() == pytest.approx(expected, abs=1e-12)
    assert expected[1] == pytest.approx(1) and expected[4] == 0
    torch.testing.assert_close(rewards(samples, images), (parts["cider_d"] + 0.5 * parts["meteor"]).float())
    assert rewards.parts(torch.full((1, 3), END), torch.tensor([0]))["meteor"].tolist() == [0.0]

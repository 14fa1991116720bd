"""Document frequencies, and the reward on token ids, against dictionaries."""

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.metrics import CiderD, CiderDReward, DocumentFrequency
from tests.tables import each_row

from .plain import document_frequencies

END, PAD = 2, 0
TRAIN = [[[5, 6, 7, END], [5, 6, END]], [[5, 8, 9, END]], [[6, 9, 4, END], [9, 9, 9, END]]]


def cut(tokens):
    return tokens[: tokens.index(END) + 1] if END in tokens else tokens


WORDS = st.lists(st.sampled_from([3, 4, 5, 6, END, 30_000]), min_size=0, max_size=9)
IMAGES = st.lists(st.lists(WORDS, min_size=1, max_size=3), min_size=2, max_size=4)


@settings(max_examples=80, deadline=None)
@given(IMAGES, IMAGES, st.data())
def test_rewards_equal_dictionaries(cider_benchmark, train, references, data):
    frequency = DocumentFrequency.from_captions(train, eos_token_id=END)
    samples = data.draw(st.integers(1, 3))
    candidate = st.lists(st.sampled_from([3, 4, 5, END, 30_000, 99]), min_size=6, max_size=6)
    number = samples * len(references)
    candidates = data.draw(st.lists(candidate, min_size=number, max_size=number))
    plain = cider_benchmark.PlainCiderD(frequency.to_dict(), frequency.num_documents)
    expected = [plain.score(cut(c), [cut(r) for r in references[i // samples]]) for i, c in enumerate(candidates)]
    rewards = CiderDReward(frequency)(torch.tensor(candidates), references)
    assert rewards.dtype == torch.float64
    np.testing.assert_allclose(rewards.numpy(), expected, rtol=0, atol=1e-12)


def test_the_same_as_the_metric_on_text():
    captions = [["a cat on a mat .", "the cat sleeps ."], ["two dogs run ."], ["a man and a dog ."]]
    predictions = ["a cat on the mat .", "dogs run .", "a man ."]
    words = {w: i + 10 for i, w in enumerate(" ".join([*chain(*captions), *predictions]).replace(".", "").split())}
    words["."] = END
    ids = [[[words[w] for w in caption.split()] for caption in image] for image in captions]
    text = CiderD(DocumentFrequency.from_captions(captions, tokenizer=None), tokenizer=None)
    expected = text.compute(predictions=predictions, references=captions, per_image=True)["per_image"]["cider_d"]
    reward = CiderDReward(DocumentFrequency.from_captions(ids, eos_token_id=END))
    for row, prediction in enumerate(predictions):
        candidate = torch.tensor([[words[w] for w in prediction.split()]])
        assert reward(candidate, [ids[row]]).item() == pytest.approx(expected[row], abs=1e-12)


@pytest.fixture
def reward():
    return CiderDReward(DocumentFrequency.from_captions(TRAIN, eos_token_id=END))


def test_the_end_counts_and_what_follows_does_not(reward):
    candidates = torch.tensor([[5, 6, 7, END, PAD], [5, 6, 7, END, 9], [5, 6, 7, END, END], [5, 6, 7, END, -100]])
    rewards = reward(candidates, TRAIN[:1])
    torch.testing.assert_close(rewards, rewards[:1].expand(4))
    unfinished = torch.tensor([[5, 6, 7, -100]])
    assert reward(unfinished, TRAIN[:1]) < reward(candidates[:1], TRAIN[:1])


def test_ignored_tokens():
    start = [[[1, *caption] for caption in image] for image in TRAIN]
    plain = CiderDReward(DocumentFrequency.from_captions(TRAIN, eos_token_id=END))
    ignoring = CiderDReward(DocumentFrequency.from_captions(start, eos_token_id=END, ignored_token_ids=[1]))
    candidates = torch.tensor([[1, 5, 6, END], [1, 9, 9, END]])
    torch.testing.assert_close(ignoring(candidates, start[:1]), plain(candidates[:, 1:], TRAIN[:1]))


def test_references_are_prepared_once_for_a_whole_dataset(reward):
    references = reward.prepare(TRAIN)
    assert len(references) == 3
    candidates = torch.tensor([[9, 9, 9, END], [5, 6, 7, END], [6, 9, 4, END], [5, 6, 7, END]])
    images = torch.tensor([2, 0, 2, 1])
    rewards = reward(candidates, references, images)
    for candidate, image, value in zip(candidates, images, rewards, strict=True):
        assert reward(candidate[None], [TRAIN[image]]).item() == pytest.approx(value.item(), abs=1e-12)
    tensors = [[torch.tensor(caption) for caption in image] for image in TRAIN]
    torch.testing.assert_close(reward(candidates, tensors, images), rewards)
    torch.testing.assert_close(reward(candidates, references, images.tolist()), rewards)


def test_empty_captions_and_batches(reward):
    references = reward.prepare(TRAIN)
    assert reward(torch.empty(0, 4, dtype=torch.long), references, torch.empty(0, dtype=torch.long)).shape == (0,)
    assert reward(torch.empty(3, 0, dtype=torch.long), references).tolist() == [0, 0, 0]
    assert reward(torch.full((3, 4), -100), references).tolist() == [0, 0, 0]
    no_words = CiderDReward(reward.document_frequency).prepare([[[]]])
    assert reward(torch.tensor([[5, 6, 7]]), no_words).tolist() == [0]


CANDIDATES = torch.tensor([[5, 6, END], [5, 6, END]])


@each_row(
    ("arguments", "named"),
    [
        ((CANDIDATES, TRAIN), "image_indices .*2"),
        ((CANDIDATES, [TRAIN[0], []]), "Image 1"),
        ((CANDIDATES, TRAIN, [0, 3]), "image_indices .*2"),
    ],
)
def test_bad_input_is_named(reward, arguments, named):
    with pytest.raises(ValueError, match=named):
        reward(*arguments)


def test_frequencies_of_text_are_refused():
    with pytest.raises(ValueError, match="text"):
        CiderDReward(DocumentFrequency.from_captions([["a"], ["b"]]))


CAPTIONS = [["A cat, a mat!", "a cat sleeps"], ["two cats"], ["a dog barks at a cat"]]
TOKENIZED = [["a cat a mat", "a cat sleeps"], ["two cats"], ["a dog barks at a cat"]]


def test_counts_images_not_captions():
    frequency = DocumentFrequency.from_captions(CAPTIONS)
    table = frequency.to_dict()
    assert table == document_frequencies([[c.split() for c in image] for image in TOKENIZED])
    assert table[("a", "cat")] == 2
    assert frequency.num_documents == 3
    assert DocumentFrequency.from_captions(TOKENIZED, tokenizer=None).to_dict() == table


@each_row("kind", [list, np.array, torch.tensor])
def test_token_ids_end_with_the_end_token(kind):
    images = [[[1, 5, 6, 2, 0, 0], [1, 5, 2, 9, 9, 2]], [[1, 6, 7, -100, -100]]]
    captions = [[kind(caption) for caption in image] for image in images]
    frequency = DocumentFrequency.from_captions(captions, eos_token_id=2, ignored_token_ids=[1])
    assert frequency.to_dict() == document_frequencies([[[5, 6, 2], [5, 2]], [[6, 7]]])
    assert (frequency.eos_token_id, frequency.ignored_token_ids) == (2, (1,))


@each_row(
    ("captions", "named"),
    [
        ([["a cat"]], "1"),
        ([["a cat"], []], "image 1"),
        ([[[0.5]], [[1.0]]], "integers"),
    ],
)
def test_bad_captions_are_named(captions, named):
    with pytest.raises(ValueError, match=named):
        DocumentFrequency.from_captions(captions)

"""The CIDEr-D reward on token ids against a dictionary implementation written with loops."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.metrics import CiderDReward, DocumentFrequency

END = 2
caption = st.lists(st.integers(3, 9), min_size=0, max_size=9).map(lambda words: [*words, END])
images = st.lists(st.lists(caption, min_size=1, max_size=4), min_size=2, max_size=5)


def ngrams(words):
    return [Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for n in range(1, 5)]


def slow_cider_d(candidate, references, corpus):
    """Eq. 4 of Vedantam et al. 2015 as the public code computes it, with dictionaries."""
    frequency = Counter()
    for captions in corpus:
        frequency.update({gram for words in captions for counts in ngrams(words) for gram in counts})
    log_documents = math.log(len(corpus))

    def vector(words):
        return [
            {g: c * (log_documents - math.log(max(1, frequency[g]))) for g, c in counts.items()}
            for counts in ngrams(words)
        ]

    own, total = vector(candidate), 0.0
    for reference in references:
        other = vector(reference)
        difference = max(len(candidate) - 1, 0) - max(len(reference) - 1, 0)
        for mine, theirs in zip(own, other, strict=True):
            norm = math.sqrt(sum(v * v for v in mine.values())) * math.sqrt(sum(v * v for v in theirs.values()))
            product = sum(min(v, theirs.get(g, 0.0)) * theirs.get(g, 0.0) for g, v in mine.items())
            total += (product / norm if norm else 0.0) * math.exp(-(difference**2) / 72)
    return total / len(references) / 4 * 10


@settings(max_examples=40, deadline=None)
@given(images, st.data())
def test_reward_equals_the_loops(corpus, data):
    candidates = [[data.draw(caption) for _ in range(2)] for _ in corpus]
    width = max(len(words) for pair in candidates for words in pair) + 2
    padded = torch.zeros(2 * len(corpus), width, dtype=torch.long)
    for row, words in zip(padded, [words for pair in candidates for words in pair], strict=True):
        row[: len(words)] = torch.tensor(words)
        row[len(words) :] = 7  # nothing behind the end token counts
    reward = CiderDReward(DocumentFrequency.from_captions(corpus, eos_token_id=END))
    result = reward(padded, reward.prepare(corpus))
    expected = [
        slow_cider_d(words, references, corpus)
        for references, pair in zip(corpus, candidates, strict=True)
        for words in pair
    ]
    assert result.tolist() == pytest.approx(expected, abs=1e-10)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="text"):
        CiderDReward(DocumentFrequency.from_captions([["a man"], ["a dog"]]))
    reward = CiderDReward(DocumentFrequency.from_captions([[[3, END]], [[4, END]]], eos_token_id=END))
    with pytest.raises(ValueError, match="shape"):
        reward(torch.tensor([3, END]), [[[3, END]]])
    with pytest.raises(ValueError, match="evenly"):
        reward(torch.tensor([[3, END]] * 3), [[[3, END]], [[4, END]]])

"""Counting n-grams with arrays against counting with dictionaries."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ngsan.metrics.ngrams import WordSequences, count_ngrams

from .plain import ngrams

# Few words make n-grams coincide; very large ids show that keys do not overflow.
WORD = st.one_of(st.integers(0, 3), st.sampled_from([70_000, 250_000, 2**31]))
SEQUENCES = st.lists(st.lists(WORD, max_size=8), max_size=6)


def as_sequences(lists):
    lengths = np.array([len(words) for words in lists], dtype=np.int64)
    return WordSequences(np.array([w for words in lists for w in words], dtype=np.int64), lengths)


def spelled_out(levels):
    """The distinct n-grams of each order, as tuples."""
    above, spelled = [()], []
    for level in levels:
        above = [(*above[p], w) for p, w in zip(level.parents.tolist(), level.words.tolist(), strict=True)]
        spelled.append(above)
    return spelled


@settings(max_examples=150, deadline=None)
@given(SEQUENCES)
def test_counts(lists):
    levels = count_ngrams(as_sequences(lists))
    for n, (level, spelled) in enumerate(zip(levels, spelled_out(levels), strict=True), 1):
        entries = zip(level.sequences.tolist(), level.ngrams.tolist(), level.counts.tolist(), strict=True)
        counted = {(sequence, spelled[ngram]): count for sequence, ngram, count in entries}
        expected = {(i, g): c for i, words in enumerate(lists) for g, c in Counter(ngrams(words, n)).items()}
        assert counted == expected
        assert len(counted) == len(level.ngrams)
        order = list(zip(level.ngrams.tolist(), level.sequences.tolist(), strict=True))
        assert order == sorted(order)

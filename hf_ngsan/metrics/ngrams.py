"""Counting the n-grams of many word sequences at once, exactly, with integer arrays.

BLEU, CIDEr, CIDEr-D, document frequencies and the self-critical reward all rest on one table: which n-gram occurs how
often in which caption. `count_ngrams` makes it with one stable sort an order. An n-gram is named by the number of
its first n - 1 words and its last word, so nothing is hashed and no collision is possible, for a vocabulary of any
size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ORDER = 4


@dataclass(frozen=True)
class WordSequences:
    """Sequences of word ids, one after another.

    Attributes:
        words: int64 `(total,)`, every id >= 0.
        lengths: int64 `(sequences,)`, summing to `total`.
    """

    words: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, indices: np.ndarray) -> WordSequences:
        """Returns the sequences of these indices, in this order."""
        starts = np.cumsum(self.lengths) - self.lengths
        _, positions = expand_ranges(starts[indices], self.lengths[indices])
        return WordSequences(self.words[positions], self.lengths[indices])

    def __add__(self, other: WordSequences) -> WordSequences:
        return WordSequences(np.concatenate([self.words, other.words]), np.concatenate([self.lengths, other.lengths]))


@dataclass(frozen=True)
class NGramLevel:
    """All n-grams of one order: D distinct ones, and E entries that say which sequence contains which.

    Attributes:
        parents: int64 `(D,)`, the number of the first n - 1 words in the level above (0 for single words).
        words: int64 `(D,)`, the last word. N-grams are numbered in the order of (parent, word).
        ngrams: int64 `(E,)`, the n-gram of each entry. Entries are in the order of (n-gram, sequence).
        sequences: int64 `(E,)`, the sequence of each entry.
        counts: int64 `(E,)`, how often the n-gram occurs there.
    """

    parents: np.ndarray
    words: np.ndarray
    ngrams: np.ndarray
    sequences: np.ndarray
    counts: np.ndarray


def count_ngrams(sequences: WordSequences) -> list[NGramLevel]:
    """Counts the n-grams of order 1 to 4 of each sequence, in one level for each order."""
    base = int(sequences.words.max(initial=0)) + 1
    owners = np.repeat(np.arange(len(sequences)), sequences.lengths)
    ends = np.cumsum(sequences.lengths)[owners]
    last = np.arange(len(owners))
    parents = np.zeros_like(last)
    levels = []
    for _ in range(ORDER):
        keys = parents * base + sequences.words[last]
        by_key = stable_order(keys)
        keys, owners_by_key = keys[by_key], owners[by_key]
        new_ngram = starts_of_runs(keys)
        numbers = np.cumsum(new_ngram) - 1
        new_entry = np.flatnonzero(new_ngram | starts_of_runs(owners_by_key))
        distinct = keys[new_ngram]
        levels.append(
            NGramLevel(
                parents=distinct // base,
                words=distinct % base,
                ngrams=numbers[new_entry],
                sequences=owners_by_key[new_entry],
                counts=np.diff(new_entry, append=len(keys)),
            )
        )
        parents = np.empty_like(numbers)
        parents[by_key] = numbers
        longer = last + 1 < ends
        last, ends, owners, parents = last[longer] + 1, ends[longer], owners[longer], parents[longer]
    return levels


class NGramTable:
    """Distinct n-grams that can be looked up, level by level.

    Args:
        parents, words: for each order the arrays of `NGramLevel`.
    """

    def __init__(self, parents: Sequence[np.ndarray], words: Sequence[np.ndarray]) -> None:
        self.parents = parents
        self.words = words
        self.base = max((int(level.max(initial=0)) for level in words), default=0) + 1
        self.keys = [p * self.base + w for p, w in zip(parents, words, strict=True)]

    def __len__(self) -> int:
        return sum(map(len, self.words))

    def is_sound(self) -> bool:
        """Returns whether every parent exists and the n-grams of each level are in order, as `locate` needs them."""
        above = 1
        for parents, words, keys in zip(self.parents, self.words, self.keys, strict=True):
            inside = (parents >= 0) & (parents < above) & (words >= 0)
            if not (inside.all() and (np.diff(keys) > 0).all()):
                return False
            above = len(keys)
        return True

    def locate(self, levels: Sequence[NGramLevel], words: np.ndarray | None = None) -> list[np.ndarray]:
        """Finds n-grams in this table.

        Args:
            levels: the n-grams.
            words: this table's word id for each of their word ids, -1 for a word unknown here; `None` where both number
                words alike.

        Returns:
            For each order int64 `(D,)`: the number of each n-gram here, or -1.
        """
        above, found = np.zeros(1, dtype=np.int64), []
        for level, keys in zip(levels, self.keys, strict=True):
            parents = above[level.parents]
            last = level.words if words is None else words[level.words]
            known = np.flatnonzero((parents >= 0) & (last >= 0) & (last < self.base))
            above = np.full(len(parents), -1)
            above[known] = find_keys(keys, parents[known] * self.base + last[known])
            found.append(above)
        return found


def find_keys(keys: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Returns the position of each query in sorted keys, or -1."""
    if not len(keys):
        return np.full(len(queries), -1)
    positions = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[positions] == queries, positions, -1)


def stable_order(keys: np.ndarray) -> np.ndarray:
    """Returns `np.argsort(keys, kind="stable")` of integers >= 0, by digits of 16 bits (several times faster)."""
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    top, shift = int(keys.max(initial=0)) >> 16, 16
    while top:
        digits = (keys >> shift & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
        top, shift = top >> 16, shift + 16
    return order


def starts_of_runs(values: np.ndarray) -> np.ndarray:
    """Returns True where a value differs from the one before it, and at the first."""
    starts = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return starts


def expand_ranges(starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lays ranges of integers out one after another.

    Returns:
        `(owner, index)`: for range i the numbers `starts[i] ... starts[i] + lengths[i] - 1` in `index`, i in `owner`.
    """
    owner = np.repeat(np.arange(len(lengths)), lengths)
    index = np.arange(len(owner)) + (starts - np.cumsum(lengths) + lengths)[owner]
    return owner, index

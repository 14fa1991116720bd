"""Counts the n-grams of many word sequences at once, exactly, with integer arrays.

BLEU, CIDEr, CIDEr-D, document frequencies and the self-critical reward use one table: the count of each n-gram in each
caption. An n-gram is identified by the number of its first n - 1 words and its last word, without hashing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    TokenIds = Sequence[int] | np.ndarray | torch.Tensor
    TokenIdSequences = Sequence[TokenIds] | np.ndarray | torch.Tensor

ORDER = 4


@dataclass(frozen=True)
class WordSequences:
    """Concatenated sequences of word ids."""

    words: np.ndarray  # int64 `(total,)`, every id >= 0
    lengths: np.ndarray  # int64 `(sequences,)`, summing to `total`

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, indices: np.ndarray) -> WordSequences:
        starts = np.cumsum(self.lengths) - self.lengths
        _, positions = expand_ranges(starts[indices], self.lengths[indices])
        return WordSequences(self.words[positions], self.lengths[indices])

    def __add__(self, other: WordSequences) -> WordSequences:
        return WordSequences(np.concatenate([self.words, other.words]), np.concatenate([self.lengths, other.lengths]))


@dataclass(frozen=True)
class NGramLevel:
    """All n-grams of one order: D distinct n-grams, and E entries for n-grams in sequences; all arrays are int64.

    N-grams are numbered in the order of (parent, word), and entries are sorted by (n-gram, sequence).
    """

    parents: np.ndarray  # `(D,)`, the number of the first n - 1 words in the level above (0 for single words)
    words: np.ndarray  # `(D,)`, the last word
    ngrams: np.ndarray  # `(E,)`, the n-gram of each entry
    sequences: np.ndarray  # `(E,)`, the sequence of each entry
    counts: np.ndarray  # `(E,)`, how often the n-gram occurs there


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
        by_key = np.argsort(keys, kind="stable")
        keys, owners_by_key = keys[by_key], owners[by_key]
        new_ngram = starts_of_runs(keys)
        numbers = np.cumsum(new_ngram) - 1
        new_entry = np.flatnonzero(new_ngram | starts_of_runs(owners_by_key))
        distinct = keys[new_ngram]
        entries = numbers[new_entry], owners_by_key[new_entry], np.diff(new_entry, append=len(keys))
        levels.append(NGramLevel(distinct // base, distinct % base, *entries))
        parents = np.empty_like(numbers)
        parents[by_key] = numbers
        longer = last + 1 < ends
        last, ends, owners, parents = last[longer] + 1, ends[longer], owners[longer], parents[longer]
    return levels


def starts_of_runs(values: np.ndarray) -> np.ndarray:
    """Returns True where a value differs from the previous one, and at the first value."""
    starts = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return starts


def expand_ranges(starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns `(owner, index)`: for range i, `index` has `starts[i] ... starts[i] + lengths[i] - 1`, and `owner` i."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    index = np.arange(len(owner)) + (starts - np.cumsum(lengths) + lengths)[owner]
    return owner, index


def count_documents(ngrams: np.ndarray, images: np.ndarray, size: int) -> np.ndarray:
    """Counts the images of each of `size` n-grams, int64 `(size,)`, from entries sorted by (n-gram, image)."""
    new_document = starts_of_runs(ngrams) | starts_of_runs(images)
    return np.bincount(ngrams[new_document], minlength=size)


def cut_sequences(
    sequences: TokenIdSequences, eos_token_id: int | None = None, ignored_token_ids: Sequence[int] = ()
) -> WordSequences:
    """Truncates sequences of token ids after their first end token, and leaves out ignored and negative ids.

    Sequences are an array or tensor `(R, T)`, or a list of lists, arrays or tensors `(T,)`.
    """
    if hasattr(sequences, "ndim"):
        matrix = as_integers(sequences)
        tokens, lengths = matrix.reshape(-1), np.full(matrix.shape[0], matrix.shape[1], dtype=np.int64)
    else:
        rows_of_tokens = [as_integers(sequence) for sequence in sequences]
        lengths = np.fromiter(map(len, rows_of_tokens), dtype=np.int64, count=len(rows_of_tokens))
        tokens = np.concatenate(rows_of_tokens) if rows_of_tokens else np.zeros(0, dtype=np.int64)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    keep = tokens >= 0
    if len(ignored_token_ids):
        keep &= ~np.isin(tokens, np.asarray(ignored_token_ids))
    if eos_token_id is not None:
        ends = tokens == eos_token_id
        ends_before = np.cumsum(ends) - ends
        row_starts = np.cumsum(lengths) - lengths
        keep &= ends_before == ends_before[row_starts[rows]]
    return WordSequences(tokens[keep], np.bincount(rows[keep], minlength=len(lengths)))


def as_integers(values: TokenIds | TokenIdSequences) -> np.ndarray:
    """Returns token ids as int64; raises a ValueError if they are not integers."""
    detach = getattr(values, "detach", None)
    array = np.asarray(values if detach is None else detach().cpu())
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"Token ids must be integers, not {array.dtype}.")
    return array.astype(np.int64, copy=False)


class ScoredGroups:
    """Reference and candidate captions of a set of images as one table of n-grams.

    References are sorted by image, and each image of a candidate has a reference. All arrays are int64.

    Attributes:
        images, lengths: `(sequences,)`, image by image, with an image's references before its candidates.
        references, candidates: the numbers of these sequences, in the given order.
        levels (`list[NGramLevel]`): the n-grams of all captions by order.
        ngrams, sequences, counts, orders: `(E,)`, the concatenated entries of all levels: the n-gram (numbered through
            all levels), the sequence, the count, and the level (from 0).
        candidate_entries (`(C,)`), reference_entries: the entries of candidates and those of references.
        shared_starts, shared_numbers: `(C,)`: the references with the same n-gram and image as a candidate entry are
            `reference_entries[start : start + number]`.
    """

    def __init__(
        self,
        references: WordSequences,
        reference_images: np.ndarray,
        candidates: WordSequences,
        candidate_images: np.ndarray,
    ) -> None:
        images = np.concatenate([reference_images, candidate_images])
        by_image = np.argsort(images, kind="stable")
        place = np.empty_like(by_image)
        place[by_image] = np.arange(len(by_image))
        sequences = (references + candidates).take(by_image)
        self.images = images[by_image]
        self.lengths = sequences.lengths
        self.references, self.candidates = place[: len(references)], place[len(references) :]

        self.levels = count_ngrams(sequences)
        sizes = [len(level.words) for level in self.levels]
        offsets = np.cumsum([0, *sizes])
        self.ngrams = np.concatenate([level.ngrams + o for level, o in zip(self.levels, offsets[:-1], strict=True)])
        self.sequences = np.concatenate([level.sequences for level in self.levels])
        self.counts = np.concatenate([level.counts for level in self.levels])
        self.orders = np.repeat(np.arange(len(self.levels)), [len(level.ngrams) for level in self.levels])
        self.num_ngrams = int(offsets[-1])

        is_candidate = np.zeros(len(self.images), dtype=bool)
        is_candidate[self.candidates] = True
        in_candidate = is_candidate[self.sequences]
        self.candidate_entries = np.flatnonzero(in_candidate)
        self.reference_entries = np.flatnonzero(~in_candidate)
        # Entries are sorted by (n-gram, sequence), so those of one n-gram and one image are consecutive.
        runs = np.cumsum(starts_of_runs(self.ngrams) | starts_of_runs(self.images[self.sequences])) - 1
        numbers = np.bincount(runs[self.reference_entries], minlength=int(runs[-1]) + 1 if len(runs) else 0)
        candidate_runs = runs[self.candidate_entries]
        self.shared_starts = (np.cumsum(numbers) - numbers)[candidate_runs]
        self.shared_numbers = numbers[candidate_runs]

    def reference_log_frequencies(self) -> np.ndarray:
        """Returns the logarithm of each n-gram's document frequency among these references, 0 if it does not occur."""
        entries = self.reference_entries
        counts = count_documents(self.ngrams[entries], self.images[self.sequences[entries]], self.num_ngrams)
        return np.log(np.maximum(counts, 1))

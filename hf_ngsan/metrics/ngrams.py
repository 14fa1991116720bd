"""Counting n-grams of many word sequences at once, exactly, with sorted integer keys.

BLEU, CIDEr, CIDEr-D, the document frequencies and the self-critical reward all ask the same two questions: how often does
each group of sequences (a caption, an image, the whole corpus) contain each n-gram, and which n-gram of one group is this
n-gram of another? `NGramTrie` answers both with sorting and binary search over whole arrays. A node is named by its parent
node and its last word, so no hashing is involved and no collision is possible.
"""

from dataclasses import dataclass

import numpy as np

ORDER = 4


@dataclass(frozen=True)
class WordSequences:
    """Sequences of word ids, one after another.

    Args:
        words: int64 `(total,)`, every id >= 0.
        lengths: int64 `(sequences,)`, summing to `total`.
    """

    words: np.ndarray
    lengths: np.ndarray

    @classmethod
    def from_lists(cls, sequences):
        """Builds the arrays from an iterable of lists of non-negative integers."""
        sequences = list(sequences)
        lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
        total = int(lengths.sum())
        return cls(np.fromiter((w for s in sequences for w in s), dtype=np.int64, count=total), lengths)

    def __len__(self):
        return len(self.lengths)

    @property
    def base(self):
        """One more than the largest word id."""
        return int(self.words.max()) + 1 if len(self.words) else 1


@dataclass(frozen=True)
class NGramLevel:
    """The distinct n-grams of one order.

    Attributes:
        parents: node of the first n - 1 words in the level above; for single words the group.
        words: the last word of each n-gram.
        groups: the group each n-gram was counted in.
        counts: how often it occurs there.
        keys: `parents * base + words`, strictly increasing.
    """

    parents: np.ndarray
    words: np.ndarray
    groups: np.ndarray
    counts: np.ndarray
    keys: np.ndarray


class NGramTrie:
    """The n-grams of order 1 to 4 of each group of word sequences, with their counts."""

    def __init__(self, levels, base):
        self.levels = levels
        self.base = base

    @classmethod
    def count(cls, sequences, groups, order=ORDER):
        """Counts n-grams.

        Args:
            sequences (`WordSequences`): what to count in.
            groups: int64 `(len(sequences),)`, non-negative; sequences of the same group are counted together.
            order: the longest n-gram.
        """
        base = sequences.base
        ends = np.repeat(np.cumsum(sequences.lengths), sequences.lengths)
        last = np.arange(len(sequences.words))
        parents = np.repeat(np.asarray(groups, dtype=np.int64), sequences.lengths)
        levels = []
        for _ in range(order):
            keys, nodes, counts = np.unique(
                parents * base + sequences.words[last], return_inverse=True, return_counts=True
            )
            node_parents, node_words = np.divmod(keys, base)
            node_groups = levels[-1].groups[node_parents] if levels else node_parents
            levels.append(NGramLevel(node_parents, node_words, node_groups, counts, keys))
            longer = last + 1 < ends
            last, ends, parents = last[longer] + 1, ends[longer], nodes.reshape(-1)[longer]
        return cls(levels, base)

    @classmethod
    def from_nodes(cls, parents, words, counts, base):
        """Rebuilds a trie of a single group (0) from the arrays of each level, as `levels` holds them."""
        levels = []
        for p, w, c in zip(parents, words, counts, strict=True):
            levels.append(NGramLevel(p, w, np.zeros_like(p), c, p * base + w))
        return cls(levels, base)

    def locate(self, other, groups, words=None):
        """Finds each of this trie's n-grams in another trie.

        Args:
            other (`NGramTrie`): where to look.
            groups: the other trie's group for each group of this one, or one number for all.
            words: the other trie's word id for each word id of this one, -1 for a word it does not know; left out when
                both count the same ids.

        Returns:
            For each level an int64 array with the other's node, or -1.
        """
        located = []
        above = groups
        for mine, theirs in zip(self.levels, other.levels, strict=True):
            parents = above[mine.parents] if isinstance(above, np.ndarray) else np.full(len(mine.keys), above)
            last = mine.words if words is None else words[mine.words]
            keys = parents * other.base + last
            possible = (parents >= 0) & (last >= 0) & (last < other.base)
            above = np.where(possible, find_sorted(theirs.keys, keys), -1)
            located.append(above)
        return located


def find_sorted(keys, queries):
    """Position of each query in the sorted array `keys`, or -1 where it is absent."""
    if not len(keys):
        return np.full(len(queries), -1)
    positions = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[positions] == queries, positions, -1)


def expand_ranges(starts, lengths):
    """Lays ranges out one after another.

    Returns:
        `(owner, index)`: for range i the numbers `starts[i] ... starts[i] + lengths[i] - 1` in `index`, i in `owner`.
    """
    owner = np.repeat(np.arange(len(lengths)), lengths)
    offsets = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return owner, starts[owner] + offsets

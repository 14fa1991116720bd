"""Exact search: inner products of queries with every embedding, block by block."""

import sys
from collections.abc import Sequence

import numpy as np

from .index_folder import IndexFolder

ROWS_AT_ONCE = 2048
"""Rows that are converted to float32 at a time: few enough to stay in the cache of a processor."""


def nearest(parts: Sequence[np.ndarray], queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the embeddings with the largest inner products; of equal ones the first.

    Args:
        parts: arrays `(n, dimension)` of float16 or float32, which may be memory-mapped; rows count through all parts.
        queries: float32 `(queries, dimension)`.
        top_k: results per query; fewer if there are fewer embeddings.

    Returns:
        Inner products, float32 `(queries, k)`, the largest first, and rows, int64 `(queries, k)`.
    """
    wanted = np.ascontiguousarray(queries, dtype=np.float32)
    products = np.empty((len(queries), sum(map(len, parts))), np.float32)
    first = 0
    for part in parts:
        for start in range(0, len(part), ROWS_AT_ONCE):
            block = as_float32(np.asarray(part[start : start + ROWS_AT_ONCE]))
            np.matmul(wanted, block.T, out=products[:, first : first + len(block)])
            first += len(block)
    k = min(top_k, products.shape[1])
    scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    for query, values in enumerate(products):
        last = np.partition(values, len(values) - k)[len(values) - k] if k else 0.0
        candidates = np.flatnonzero(values >= last)
        found = values[candidates]
        order = np.lexsort((candidates, -found))[:k]
        scores[query], rows[query] = found[order], candidates[order]
    return scores, rows


def as_float32(block: np.ndarray) -> np.ndarray:
    """Converts numbers by torch, if it is there: it takes an eighth of NumPy's time, but seconds to be imported."""
    torch = sys.modules.get("torch")
    return block.astype(np.float32) if torch is None else torch.from_numpy(block.copy()).float().numpy()


class ExactSearch:
    """Compares a query with every embedding of an index.

    Args:
        index: a complete index.
    """

    def __init__(self, index: IndexFolder) -> None:
        self.index = index

    def add(self, earlier: IndexFolder | None = None) -> None:
        """Does nothing, since the search reads the embeddings of the index."""

    def drop_earlier(self) -> None:
        """Does nothing."""

    def nearest(self, queries: np.ndarray, top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns scores and places for each query; see [`SearchBackend`]."""
        scores, rows = nearest(self.index.embeddings(), queries, top_k)
        return list(zip(scores, self.index.all_places()[rows], strict=True))

"""Exact search: inner products of queries with every embedding, block by block."""

from collections.abc import Sequence

import numpy as np
import torch

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
    wanted = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32))
    products = torch.empty(len(queries), sum(map(len, parts)))
    first = 0
    for part in parts:
        for start in range(0, len(part), ROWS_AT_ONCE):
            block = torch.from_numpy(np.asarray(part[start : start + ROWS_AT_ONCE]).copy()).float()
            torch.matmul(wanted, block.T, out=products[:, first : first + len(block)])
            first += len(block)
    k = min(top_k, products.shape[1])
    scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    for query, values in enumerate(products):
        last = values.topk(k).values[-1] if k else 0.0
        candidates = torch.nonzero(values >= last)[:, 0].numpy()
        found = values.numpy()[candidates]
        order = np.lexsort((candidates, -found))[:k]
        scores[query], rows[query] = found[order], candidates[order]
    return scores, rows


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

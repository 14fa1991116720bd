"""Search on this machine: exact comparison with every embedding, or a graph of them by the package usearch.

The graph (HNSW, Malkov and Yashunin 2018) has the embeddings in 8 or 16 bits and is memory-mapped; its candidates are
scored exactly. docs/speed.md compares both.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..io.folders import write_folder_atomically
from ..io.messages import ProgressDisplay
from .index_folder import MAKE, IndexFolder, IndexFolderError

ROWS_AT_ONCE = 2048
"""Rows that are converted to float32 at a time: few enough to stay in the cache of a processor."""
FOLDER, GRAPH, CONTENT = "usearch", "graph.usearch", "content.json"
PRECISIONS = ("i8", "f16")
"""Precisions of the graph's copy of the embeddings, the default first."""
NEIGHBOURS = 32
"""Neighbours of each embedding in the graph (M of the paper)."""
CANDIDATES_TO_ADD = 128
"""Candidates for the neighbours of a new embedding (efConstruction of the paper)."""
CANDIDATES, CANDIDATES_A_HIT = 128, 10
"""Embeddings that are scored exactly: at least 128, and at least 10 for each requested hit."""


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
        order = np.lexsort((candidates, -values[candidates]))[:k]
        rows[query] = candidates[order]
        scores[query] = values[rows[query]]
    return scores, rows


def as_float32(block: np.ndarray) -> np.ndarray:
    """Converts numbers by torch, if it is there: it takes an eighth of NumPy's time, but seconds to be imported."""
    torch = sys.modules.get("torch")
    return block.astype(np.float32) if torch is None else torch.from_numpy(block.copy()).float().numpy()


class ExactSearch:
    """Compares a query with every embedding of an index; the base of the other backends.

    Args:
        index: a complete index.
    """

    def __init__(self, index: IndexFolder) -> None:
        self.index = index

    def add(self, earlier: IndexFolder | None = None) -> None:
        """Adds the missing embeddings to the backend; this one reads those of the index.

        Args:
            earlier: an index whose place this one will take.
        """

    def drop_earlier(self) -> None:
        """Removes from the backend what only earlier indexes had; called once this index has taken their place."""

    def nearest(self, queries: np.ndarray, top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns the embeddings that are nearest to each query.

        Args:
            queries: float32 `(queries, dimension)`.
            top_k: results per query; fewer if the index has fewer embeddings.

        Returns:
            For each query inner products, float32 `(k,)`, the largest first and equal ones by place, and places,
            int64 `(k,)`.
        """
        scores, rows = nearest(self.index.embeddings(), queries, top_k)
        return list(zip(scores, self.index.all_places()[rows], strict=True))


class GraphSearch(ExactSearch):
    """Searches a graph beside the embeddings.

    Args:
        index: a complete index.
        precision: precision of the graph's copy of the embeddings, one of `PRECISIONS`; "" = `"i8"`.

    Raises:
        IndexFolderError: an unknown precision, or usearch is not installed.
    """

    def __init__(self, index: IndexFolder, precision: str = "") -> None:
        super().__init__(index)
        self.precision = precision or PRECISIONS[0]
        if self.precision not in PRECISIONS:
            raise IndexFolderError(
                f"Unknown search backend usearch:{precision}; known precisions: {', '.join(PRECISIONS)}."
            )
        try:
            from usearch.index import Index
        except ImportError:
            raise IndexFolderError(
                'Searching with usearch needs that package; install it with pip install "hf-ngsan[retrieval]".'
            ) from None
        self.graph_class: Any = Index
        self.graph: Any = None

    def content(self) -> dict:
        """Returns JSON that identifies the embeddings and settings of this graph."""
        return {"checksum": self.index.checksum(), "precision": self.precision}

    def add(self, earlier: IndexFolder | None = None) -> None:
        """Makes the graph, unless it exists and is complete."""
        try:
            self.open()
        except IndexFolderError:
            write_folder_atomically(self.index.folder / FOLDER, self.write)

    def write(self, folder: Path) -> None:
        dimension, total = self.index.description.dimension, self.index.description.num_items
        graph = self.graph_class(
            ndim=dimension,
            metric="ip",
            dtype=self.precision,
            connectivity=NEIGHBOURS,
            expansion_add=CANDIDATES_TO_ADD,
        )
        with ProgressDisplay("making the graph", total) as display:
            for number, embeddings in enumerate(self.index.embeddings()):
                if len(embeddings):
                    # usearch (2.20 to 2.26) loses embeddings that several threads add: no search ever reaches them
                    graph.add(self.index.places(number).astype(np.uint64), np.asarray(embeddings), threads=1)
                display.update(self.index.shard_items(number).stop)
        graph.save(str(folder / GRAPH))
        (folder / CONTENT).write_text(json.dumps(self.content()), encoding="utf-8")

    def open(self) -> Any:
        """Returns the graph, memory-mapped.

        Raises:
            IndexFolderError: the graph is missing, cut, or of other embeddings.
        """
        if self.graph is None:
            folder = self.index.backend_folder(FOLDER)
            if json.loads((folder / CONTENT).read_bytes()) != self.content():
                raise IndexFolderError(f"{folder} is a graph of other embeddings; {MAKE} anew.")
            self.graph = self.graph_class.restore(str(folder / GRAPH), view=True)
        return self.graph

    def nearest(self, queries: np.ndarray, top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns scores and places for each query; see [`ExactSearch`]."""
        graph = self.open()
        number = min(max(CANDIDATES, CANDIDATES_A_HIT * top_k), len(graph))
        graph.expansion_search = max(number, 1)
        hits = []
        for query in queries:
            places = graph.search(query, number).keys.astype(np.int64) if len(graph) else np.empty(0, np.int64)
            hits.append(self.index.best(places, query, top_k))
        return hits

"""Search backends: exact comparison, or a Milvus collection."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .index_folder import EXACT, IndexFolder, IndexFolderError
from .milvus import MilvusSearch

ROWS_AT_ONCE = 2048  # rows converted to float32 together


class Hit(NamedTuple):
    """A search result."""

    score: float  # inner product with the query
    name: str
    place: int  # position in its index
    captions: tuple[str, ...] = ()  # if known
    index_number: int = 0  # number of its index among the searched ones


def open_backend(index: IndexFolder, spec: str) -> "ExactSearch | MilvusSearch":
    """Returns a backend for a complete index: `exact`, or `milvus:URI` (a server or a `.db` file).

    Raises an IndexFolderError if it is unknown, not installed, or does not answer.
    """
    check_backend(spec)
    if spec == EXACT:
        return ExactSearch(index)
    return MilvusSearch(index, spec.removeprefix("milvus:"))


def check_backend(spec: str) -> None:
    """Raises an IndexFolderError unless a spec names a backend."""
    name, _, uri = spec.partition(":")
    if spec != EXACT and not (name == "milvus" and uri):
        raise IndexFolderError(f"Unknown search backend {spec!r:.80}; choose exact or milvus:URI.")


def search(
    index: IndexFolder | Sequence[IndexFolder],
    queries: np.ndarray,
    top_k: int,
    spec: str | None = None,
    filter: str = "",
) -> list[list[Hit]]:
    """Returns the nearest items to each query of `(queries, dimension)`, sorted by score, index and place.

    Several complete indexes of the same model are searched as one, with their backends or with `spec`. `filter` is an
    expression of Milvus, such as `width > 500`, that items must match.
    """
    indexes = [index] if isinstance(index, IndexFolder) else list(index)
    hits_of_queries: list[list[Hit]] = [[] for _ in queries]
    for number, folder in enumerate(indexes):
        if folder.description.fingerprint != indexes[0].description.fingerprint:
            raise IndexFolderError(f"{folder.folder} and {indexes[0].folder} have different models; search each alone.")
        own_spec = folder.backend if spec is None else spec
        backend = open_backend(folder, own_spec)
        if filter and not own_spec.startswith("milvus:"):
            lack = f"{folder.folder} uses the backend {own_spec}, which has no filters"
            raise IndexFolderError(f"{lack}; index it with --backend milvus:URI.")
        nearest = backend.nearest(queries, top_k, filter)
        for hits, query, (scores, places) in zip(hits_of_queries, queries, nearest, strict=True):
            if len(indexes) > 1:  # backends round differently
                scores, places = folder.best(places, query, top_k)
            nearest_items = zip(scores.tolist(), places.tolist(), folder.items_at(places), strict=True)
            hits += [Hit(score, name, place, captions, number) for score, place, (name, captions, _) in nearest_items]
    return [sorted(hits, key=lambda hit: (-hit.score, hit.index_number, hit.place))[:top_k] for hits in hits_of_queries]


def search_current(
    indexes: Sequence[IndexFolder],
    fingerprint: str,
    query: np.ndarray,
    top_k: int,
    spec: str | None = None,
    filter: str = "",
) -> list[Hit]:
    """Returns the nearest items, at least one, to a query `(1, dimension)` of the model with a fingerprint.

    An index that changes during the search is searched again.
    """
    for index in indexes:
        if fingerprint != index.description.fingerprint:
            made = f"{index.folder} was made with another model, {index.description.model}"
            raise IndexFolderError(f"{made}; search it with that model, or index the images again.")
    try:
        hits = search(indexes, query, top_k, spec, filter)[0]
    except Exception:  # many types, if shards of two states were read
        if all(index.is_current for index in indexes):
            raise
        hits = []
    if not all(index.is_current for index in indexes):
        return search_current([index.current() for index in indexes], fingerprint, query, top_k, spec, filter)
    if not hits and filter:
        raise IndexFolderError(f"No image matches {filter!r}; the fields are name, captions, width and height.")
    if not hits:
        folders = " and ".join(str(index.folder) for index in indexes)
        raise IndexFolderError(f"{folders} has no images: none of the indexed images could be read.")
    return hits


def nearest(parts: Sequence[np.ndarray], queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the largest inner products, float32 `(queries, k)`, and their rows, int64; ties keep their order.

    `parts` are arrays `(n, dimension)` of float16 or float32; rows are numbered through all of them.
    """
    query_array = np.ascontiguousarray(queries, dtype=np.float32)
    products = np.empty((len(queries), sum(map(len, parts))), np.float32)
    torch = sys.modules.get("torch")  # if it is already loaded: it converts eight times as fast as NumPy
    first = 0
    for part in parts:
        for start in range(0, len(part), ROWS_AT_ONCE):
            block = np.array(part[start : start + ROWS_AT_ONCE])
            block = block.astype(np.float32) if torch is None else torch.from_numpy(block).float().numpy()
            np.matmul(query_array, block.T, out=products[:, first : first + len(block)])
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


class ExactSearch:
    """Compares a query with every embedding of a complete index; other backends have the same methods."""

    def __init__(self, index: IndexFolder) -> None:
        self.index = index

    def add(self, earlier: IndexFolder | None = None) -> None:
        """Adds the missing embeddings to the backend."""

    def drop_earlier(self) -> None:
        """Removes entries of earlier indexes from the backend; called after this index has replaced them."""

    def nearest(self, queries: np.ndarray, top_k: int, filter: str = "") -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns the largest inner products, float32 `(k,)`, and their places, int64 `(k,)`, for each query."""
        scores, rows = nearest(self.index.embeddings(), queries, top_k)
        return list(zip(scores, self.index.all_places()[rows], strict=True))

"""Search backends: exact comparison, usearch's graph (HNSW, Malkov and Yashunin 2018), or a Milvus collection."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..io.folders import DamagedFolderError, check_folder, find_folder, write_folder_atomically
from ..io.messages import ProgressDisplay
from .index_folder import CANDIDATES, CANDIDATES_A_HIT, EXACT, MAKE, IndexFolder, IndexFolderError
from .milvus import IndexKind, MilvusSearch

ROWS_AT_ONCE = 2048  # rows converted to float32 together
FOLDER, GRAPH, CONTENT = "usearch", "graph.usearch", "content.json"
PRECISION = "i8"  # precision of the graph's copy of the embeddings
NEIGHBOURS = 32  # neighbours of each embedding in the graph (M in the paper)
CANDIDATES_TO_ADD = 128  # candidates for the neighbours of a new embedding (efConstruction in the paper)


class Hit(NamedTuple):
    """A search result."""

    score: float  # inner product with the query
    name: str
    place: int  # position in its index
    captions: tuple[str, ...] = ()  # if known
    index_number: int = 0  # number of its index among the searched ones


def open_backend(index: IndexFolder, spec: str, kind: IndexKind | None = None) -> "ExactSearch | MilvusSearch":
    """Returns a backend for a complete index: `exact`, `usearch`, or `milvus:URI` (a server or a `.db` file).

    Raises an IndexFolderError if it is unknown, not installed, or does not answer.
    """
    check_backend(spec, kind)
    if spec == EXACT:
        return ExactSearch(index)
    if spec == "usearch":
        return GraphSearch(index)
    return MilvusSearch(index, spec.removeprefix("milvus:"), kind)


def check_backend(spec: str, kind: IndexKind | None = None) -> None:
    """Raises an IndexFolderError unless a spec names a backend that has this kind of index."""
    name, _, uri = spec.partition(":")
    if not (spec in (EXACT, "usearch") or (name == "milvus" and uri)):
        raise IndexFolderError(f"Unknown search backend {spec!r:.80}; known: exact, usearch or milvus:URI.")
    if kind is not None:
        if name != "milvus":
            raise IndexFolderError("The kind of an index (--index-type) needs Milvus (--backend milvus:URI).")
        kind.check(uri)


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
            found = zip(scores.tolist(), places.tolist(), folder.items_at(places), strict=True)
            hits += [Hit(score, name, place, captions, number) for score, place, (name, captions, _) in found]
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
    wanted = np.ascontiguousarray(queries, dtype=np.float32)
    products = np.empty((len(queries), sum(map(len, parts))), np.float32)
    torch = sys.modules.get("torch")  # if it is already loaded: it converts eight times as fast as NumPy
    first = 0
    for part in parts:
        for start in range(0, len(part), ROWS_AT_ONCE):
            block = np.array(part[start : start + ROWS_AT_ONCE])
            block = block.astype(np.float32) if torch is None else torch.from_numpy(block).float().numpy()
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


class GraphSearch(ExactSearch):
    """Searches a graph in the index folder; raises an IndexFolderError if usearch is not installed."""

    def __init__(self, index: IndexFolder) -> None:
        super().__init__(index)
        try:
            from usearch.index import Index
        except ImportError:
            needed = 'Searching with usearch needs that package; install it with pip install "hf-ngsan[retrieval]".'
            raise IndexFolderError(needed) from None
        self.graph_class: Any = Index
        self.graph: Any = None

    def content(self) -> dict:
        return {"checksum": self.index.checksum(), "precision": PRECISION}

    def add(self, earlier: IndexFolder | None = None) -> None:
        """Makes the graph unless it exists and is complete."""
        try:
            self.open()
        except IndexFolderError:
            write_folder_atomically(self.index.folder / FOLDER, self.write)

    def write(self, folder: Path) -> None:
        sizes = {"connectivity": NEIGHBOURS, "expansion_add": CANDIDATES_TO_ADD}
        graph = self.graph_class(ndim=self.index.description.dimension, metric="ip", dtype=PRECISION, **sizes)
        with ProgressDisplay("making the graph", self.index.description.num_items) as display:
            for number, embeddings in enumerate(self.index.embeddings()):
                if len(embeddings):
                    # usearch (2.20 to 2.26) loses embeddings that several threads add: no search finds them
                    graph.add(self.index.places(number).astype(np.uint64), np.asarray(embeddings), threads=1)
                display.update(self.index.shard_items(number).stop)
        graph.save(str(folder / GRAPH))
        (folder / CONTENT).write_text(json.dumps(self.content()), encoding="utf-8")

    def open(self) -> Any:
        """Returns the memory-mapped graph; an IndexFolderError if it is missing, truncated or of other embeddings."""
        if self.graph is None:
            folder = find_folder(self.index.folder / FOLDER)
            try:
                check_folder(folder, read=[])
            except DamagedFolderError as error:
                raise IndexFolderError(f"{str(error).rstrip('.')}; {MAKE}.") from None
            if json.loads((folder / CONTENT).read_bytes()) != self.content():
                raise IndexFolderError(f"{folder} is a graph of other embeddings; {MAKE} again.")
            self.graph = self.graph_class.restore(str(folder / GRAPH), view=True)
        return self.graph

    def nearest(self, queries: np.ndarray, top_k: int, filter: str = "") -> list[tuple[np.ndarray, np.ndarray]]:
        graph = self.open()
        number = min(max(CANDIDATES, CANDIDATES_A_HIT * top_k), len(graph))
        graph.expansion_search = max(number, 1)
        if not number:
            return [(np.empty(0, np.float32), np.empty(0, np.int64))] * len(queries)
        found = (graph.search(query, number).keys.astype(np.int64) for query in queries)
        return [self.index.best(places, query, top_k) for places, query in zip(found, queries, strict=True)]

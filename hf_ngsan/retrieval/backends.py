"""Search backends: exact comparison with all embeddings, a graph of embeddings, or a collection of Milvus."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .index_folder import EXACT, IndexFolder, IndexFolderError
from .local import ExactSearch, GraphSearch
from .milvus import IndexKind, MilvusSearch

FORMS = "exact, usearch, usearch:f16 or milvus:URI"


class Hit(NamedTuple):
    """A found item.

    Attributes:
        score: inner product with the query.
        name: name of the item.
        place: place in its index.
        captions: its captions, if known.
        index_number: number of its index among those that were searched.
    """

    score: float
    name: str
    place: int
    captions: tuple[str, ...] = ()
    index_number: int = 0


def open_backend(index: IndexFolder, spec: str, kind: IndexKind | None = None) -> ExactSearch:
    """Returns a backend for an index.

    Args:
        index: a complete index.
        spec: `exact`; `usearch`, or `usearch:f16`, a graph; `milvus:URI`, a server's URL or a file ending in `.db`.
        kind: kind of Milvus's index, which `add` makes.

    Raises:
        IndexFolderError: the backend is unknown, its package is not installed, or its server does not answer.
    """
    check_backend(spec, kind)
    name, _, rest = spec.partition(":")
    if name == EXACT:
        return ExactSearch(index)
    return GraphSearch(index, rest) if name == "usearch" else MilvusSearch(index, rest, kind)


def check_backend(spec: str, kind: IndexKind | None = None) -> None:
    """Raises an IndexFolderError unless a spec names a backend, which has this kind of index."""
    name, colon, rest = spec.partition(":")
    is_graph, is_milvus = name == "usearch" and bool(colon) == bool(rest), name == "milvus" and bool(rest)
    if not (spec == EXACT or is_graph or is_milvus):
        raise IndexFolderError(f"Unknown search backend {spec!r:.80}; known: {FORMS}.")
    if kind is not None:
        if name != "milvus":
            raise IndexFolderError("The kind of an index (--index-type) goes with Milvus (--backend milvus:URI).")
        kind.check(rest)


def search(
    index: IndexFolder | Sequence[IndexFolder],
    queries: np.ndarray,
    top_k: int,
    spec: str | None = None,
    filter: str = "",
) -> list[list[Hit]]:
    """Returns the nearest items to each query, the nearest first.

    Args:
        index: a complete index, or several of the same model, which are searched as one; equal scores are ordered by
            index and place.
        queries: float32 `(queries, dimension)`.
        top_k: items per query; fewer if there are fewer.
        spec: see [`open_backend`]; that of each index by default.
        filter: an expression of Milvus, such as `width > 500`, that items must fulfil; "" for none.

    Raises:
        IndexFolderError: an index is incomplete or of another model than the first one; the filter cannot be used; or
            see [`open_backend`].
    """
    indexes = [index] if isinstance(index, IndexFolder) else list(index)
    hits_of_queries: list[list[Hit]] = [[] for _ in queries]
    for number, folder in enumerate(indexes):
        if folder.description.fingerprint != indexes[0].description.fingerprint:
            raise IndexFolderError(
                f"{indexes[0].folder} and {folder.folder} are indexes of different models, "
                f"{indexes[0].description.model} and {folder.description.model}; search each with its own."
            )
        nearest = nearest_in(folder, queries, top_k, spec, filter)
        for hits, query, (scores, places) in zip(hits_of_queries, queries, nearest, strict=True):
            if len(indexes) > 1:  # backends round in different ways
                scores, places = folder.best(places, query, top_k)
            names, captions = folder.names_at(places), folder.captions_at(places)
            hits += map(Hit, scores.tolist(), names, places.tolist(), captions, [number] * len(names))
    return [sorted(hits, key=lambda hit: (-hit.score, hit.index_number, hit.place))[:top_k] for hits in hits_of_queries]


def search_current(
    indexes: Sequence[IndexFolder],
    fingerprint: str,
    query: np.ndarray,
    top_k: int,
    spec: str | None = None,
    filter: str = "",
) -> list[Hit]:
    """Returns the nearest items to one query; an index that grows meanwhile is searched anew.

    Args:
        indexes: see [`search`].
        fingerprint: of the model that made the query.
        query: float32 `(1, dimension)`.
        top_k, spec, filter: see [`search`].

    Raises:
        IndexFolderError: see [`search`]; an index is of another model or empty, or no item fulfils the filter.
    """
    for index in indexes:
        if fingerprint != index.description.fingerprint:
            raise IndexFolderError(
                f"{index.folder} was made with another model, {index.description.model}; search it with that one, or "
                "index the images again."
            )
    try:
        hits = search(indexes, query, top_k, spec, filter)[0]
    except Exception:  # of many types, where shards of two states were read
        if all(index.is_current for index in indexes):
            raise
        hits = []
    if not all(index.is_current for index in indexes):  # one has grown: shards of both states may have been read
        return search_current([index.current() for index in indexes], fingerprint, query, top_k, spec, filter)
    if not hits and filter:
        columns = {name for index in indexes for of_item in index.shard(0).items.columns or [] for name in of_item}
        raise IndexFolderError(f"No image fulfils {filter!r}; there are name, captions, {', '.join(sorted(columns))}.")
    if not hits:
        folders = " and ".join(str(index.folder) for index in indexes)
        raise IndexFolderError(f"{folders} has no images: none of those that were indexed could be read.")
    return hits


def nearest_in(
    index: IndexFolder, queries: np.ndarray, top_k: int, spec: str | None, filter: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    spec = index.backend if spec is None else spec
    backend = open_backend(index, spec)
    if not filter:
        return backend.nearest(queries, top_k)
    if not isinstance(backend, MilvusSearch):
        raise IndexFolderError(
            f"{index.folder} is searched by {spec}, which has no filters; index it with --backend milvus:URI."
        )
    return backend.nearest(queries, top_k, filter)

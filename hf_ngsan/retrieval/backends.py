"""Search backends: exact comparison with all embeddings, a graph of embeddings, or a collection of Milvus."""

from typing import NamedTuple, Protocol

import numpy as np

from .approximate import GraphSearch
from .exact import ExactSearch
from .index_folder import EXACT, IndexFolder, IndexFolderError
from .milvus import MilvusSearch

FORMS = "exact, usearch, usearch:f16 or milvus:URI"


class SearchBackend(Protocol):
    """Finds the embeddings of an index with the largest inner products with a query."""

    def add(self) -> None:
        """Adds the missing embeddings to the backend."""

    def nearest(self, queries: np.ndarray, top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns the embeddings that are nearest to each query.

        Args:
            queries: float32 `(queries, dimension)`.
            top_k: results per query; fewer if the index has fewer embeddings.

        Returns:
            For each query inner products, float32 `(k,)`, the largest first and equal ones by place, and places,
            int64 `(k,)`.
        """


class Hit(NamedTuple):
    """A found item: name, inner product with the query, place in the index, and captions, if known."""

    score: float
    name: str
    place: int
    captions: tuple[str, ...] = ()


def open_backend(index: IndexFolder, spec: str) -> SearchBackend:
    """Returns a backend for an index.

    Args:
        index: a complete index.
        spec: `exact`; `usearch`, or `usearch:f16`, a graph; `milvus:URI`, a server's URL or a file ending in `.db`.

    Raises:
        IndexFolderError: the backend is unknown, its package is not installed, or its server does not answer.
    """
    check_backend(spec)
    name, _, rest = spec.partition(":")
    if name == EXACT:
        return ExactSearch(index)
    return GraphSearch(index, rest) if name == "usearch" else MilvusSearch(index, rest)


def check_backend(spec: str) -> None:
    """Raises an IndexFolderError unless a spec names a backend."""
    name, colon, rest = spec.partition(":")
    if spec != EXACT and not (name == "usearch" and bool(colon) == bool(rest)) and not (name == "milvus" and rest):
        raise IndexFolderError(f"Unknown search backend {spec!r:.80}; known: {FORMS}.")


def search(index: IndexFolder, queries: np.ndarray, top_k: int, spec: str | None = None) -> list[list[Hit]]:
    """Returns the nearest items to each query, the nearest first.

    Args:
        index: a complete index.
        queries: float32 `(queries, dimension)`.
        top_k: items per query; fewer if the index has fewer.
        spec: see [`open_backend`]; the index's own by default.

    Raises:
        IndexFolderError: the index is damaged, of another dimension than the queries, or see [`open_backend`].
    """
    if queries.ndim != 2 or queries.shape[1] != index.description.dimension:
        raise IndexFolderError(
            f"The queries have the shape {queries.shape}, but {index.folder} holds embeddings of dimension "
            f"{index.description.dimension}; search it with the model that made it, {index.description.model}."
        )
    found = open_backend(index, index.backend if spec is None else spec).nearest(queries, top_k)
    return [
        [
            Hit(float(score), name, int(place), captions)
            for score, place, name, captions in zip(
                scores, places, index.names_at(places), index.captions_at(places), strict=True
            )
        ]
        for scores, places in found
    ]

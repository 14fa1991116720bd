"""Backends that search an index: every embedding in turn, a graph of embeddings, or a collection of Milvus."""

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
        """Adds the embeddings that the backend does not have yet."""

    def nearest(self, queries: np.ndarray, top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns the embeddings that are nearest to each query.

        Args:
            queries: float32 `(queries, dimension)`.
            top_k: results a query; fewer where there are fewer embeddings.

        Returns:
            For each query inner products, float32 `(k,)`, the largest first and of equal ones the first place first,
            and places, int64 `(k,)`.
        """


class Hit(NamedTuple):
    """An item that was found, its inner product with the query, its place in the index, and its captions, if known."""

    score: float
    name: str
    place: int
    captions: tuple[str, ...] = ()


def open_backend(index: IndexFolder, spec: str) -> SearchBackend:
    """Returns the backend that searches an index.

    Args:
        index: complete.
        spec: `exact`; `usearch`, or `usearch:f16`, a graph; `milvus:URI`, a server's URL or a file ending in `.db`.

    Raises:
        IndexFolderError: there is no such backend, its package is not installed, or its server does not answer.
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
        index: complete.
        queries: float32 `(queries, dimension)`.
        top_k: items a query; fewer where there are fewer.
        spec: see [`open_backend`]; by default what the index was made for.

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

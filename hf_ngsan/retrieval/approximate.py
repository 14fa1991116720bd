"""Approximate search in a graph of embeddings (HNSW, Malkov and Yashunin 2018) by the package usearch.

The graph has the embeddings in 8 or 16 bits and is memory-mapped; its candidates are scored exactly. docs/speed.md
compares it with exact search.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..io.fields import read_json_or_none
from ..io.folders import write_folder_atomically
from ..io.progress_display import ProgressDisplay
from .graph_file import PRECISIONS, GraphFileError, check_graph_file
from .index_folder import MAKE, IndexFolder, IndexFolderError

FOLDER, GRAPH, CONTENT = "usearch", "graph.usearch", "content.json"
DEFAULT_PRECISION = "i8"
NEIGHBOURS = 32
"""Neighbours of each embedding in the graph (M of the paper)."""
CANDIDATES_TO_ADD = 128
"""Candidates for the neighbours of a new embedding (efConstruction of the paper)."""
CANDIDATES, CANDIDATES_A_HIT = 128, 10
"""Embeddings that are scored exactly: at least 128, and at least 10 for each requested hit."""


class GraphSearch:
    """Searches a graph beside the embeddings.

    Args:
        index: a complete index.
        precision: precision of the graph's copy of the embeddings: `"i8"` or `"f16"`; "" = `"i8"`.

    Raises:
        IndexFolderError: an unknown precision, or usearch is not installed.
    """

    def __init__(self, index: IndexFolder, precision: str = "") -> None:
        self.index, self.precision = index, precision or DEFAULT_PRECISION
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
            self.open(verify=True)
        except IndexFolderError:
            write_folder_atomically(self.index.folder / FOLDER, self.write)

    def drop_earlier(self) -> None:
        """Does nothing, since an earlier graph goes with its folder."""

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

    def open(self, verify: bool = False) -> Any:
        """Returns the graph, memory-mapped, after a check that all its references lead to embeddings.

        Args:
            verify: whether to read its copy of the embeddings too, and compare checksums.

        Raises:
            IndexFolderError: the graph is missing, damaged, or of other embeddings.
        """
        if self.graph is None:
            read = None if verify else [CONTENT]
            folder = self.index.backend_folder(FOLDER, (GRAPH, CONTENT), "graph to search", read)
            if read_json_or_none(folder / CONTENT) != self.content():
                raise IndexFolderError(f"{folder} is a graph of other embeddings; {MAKE} anew.")
            file, dimension = folder / GRAPH, self.index.description.dimension
            try:
                check_graph_file(file, self.index.all_places(), dimension, self.precision, NEIGHBOURS)
                self.graph = self.graph_class.restore(str(file), view=True)
            except (GraphFileError, RuntimeError, ValueError) as error:
                raise IndexFolderError(f"{file} is damaged ({error}); {MAKE} anew.") from None
        return self.graph

    def nearest(self, queries: np.ndarray, top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns scores and places for each query; see [`SearchBackend`]."""
        graph = self.open()
        number = min(max(CANDIDATES, CANDIDATES_A_HIT * top_k), len(graph))
        graph.expansion_search = max(number, 1)
        found = []
        for query in queries:
            places = graph.search(query, number).keys.astype(np.int64) if len(graph) else np.empty(0, np.int64)
            found.append(self.index.best(places, query, top_k))
        return found

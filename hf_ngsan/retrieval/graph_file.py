"""Check of graph files of usearch 2, which follows the references in a file without checking them.

A file has these parts:

matrix      rows and bytes a row, 32 bits each; the embeddings
head        64 bytes: `usearch`, its version, kinds of numbers, how many embeddings, their dimension
graph head  5 numbers of 64 bits: nodes, neighbours, neighbours in level 0, the top level, the node to begin at
levels      16 bits for each node
nodes       key and level; for each level from 0 how many neighbours, and room for the numbers of these nodes
"""

from pathlib import Path

import numpy as np

HEAD_BYTES, GRAPH_HEAD_BYTES = 64, 40
INNER_PRODUCT, KEY_OF_64_BITS, NODE_OF_32_BITS = ord("i"), 14, 15
PRECISIONS = {"i8": (23, 1), "f16": (12, 2)}
"""Precisions of embeddings: usearch's number and bytes."""
KEY_BYTES, LEVEL_BYTES, NUMBER_BYTES = 8, 2, 4
NODES_AT_ONCE = 2**14


class GraphFileError(ValueError):
    """A file that is no graph of these embeddings; the message has the reason."""


def check_graph_file(file: Path, keys: np.ndarray, dimension: int, precision: str, neighbours: int) -> None:
    """Checks that a graph has these embeddings, and that all its references lead to them.

    Args:
        file: a file that usearch saved.
        keys: keys of the embeddings, int64 `(embeddings,)`.
        dimension: dimension of an embedding.
        precision: precision of the embeddings in the file, one of `PRECISIONS`.
        neighbours: maximal neighbours of a node above level 0; level 0 has twice as many.

    Raises:
        GraphFileError: the file is no such graph.
        OSError: the file cannot be read.
    """
    content = np.memmap(file, np.uint8, "r") if file.stat().st_size else np.empty(0, np.uint8)
    kind, num_bytes = PRECISIONS[precision]
    start = 2 * NUMBER_BYTES + len(keys) * dimension * num_bytes
    expect(len(content) >= start + HEAD_BYTES + GRAPH_HEAD_BYTES, "it is too short")
    matrix = content[: 2 * NUMBER_BYTES].view("<u4").tolist()
    expect(matrix == [len(keys), dimension * num_bytes], "its embeddings have another shape")
    head = content[start : start + HEAD_BYTES].tobytes()
    expect(head[:9] == b"usearch\2\0", "it is of no version 2 of usearch")
    expect(
        list(head[13:17]) == [INNER_PRODUCT, kind, KEY_OF_64_BITS, NODE_OF_32_BITS], "its numbers are of other kinds"
    )
    present, deleted, of_dimension = np.frombuffer(head[17:41], "<u8").tolist()
    expect(
        (present, deleted, of_dimension, head[41]) == (len(keys), 0, dimension, 0), "its head is of other embeddings"
    )
    start += HEAD_BYTES
    graph_head = content[start : start + GRAPH_HEAD_BYTES].tobytes()
    nodes, *widths, top, first = np.frombuffer(graph_head, "<u8").tolist()
    expect((nodes, widths) == (len(keys), [neighbours, 2 * neighbours]), "its graph is of other embeddings")
    start += GRAPH_HEAD_BYTES
    expect(len(content) >= start + LEVEL_BYTES * nodes, "it is too short")
    levels = content[start : start + LEVEL_BYTES * nodes].view("<i2").astype(np.int64)
    if nodes:
        expect(levels.min() >= 0 and first < nodes and top == levels[first] == levels.max(), "its levels do not fit")
    check_nodes(content[start + LEVEL_BYTES * nodes :], levels, keys, neighbours)


def check_nodes(content: np.ndarray, levels: np.ndarray, keys: np.ndarray, neighbours: int) -> None:
    """Checks the nodes of a graph; the neighbours of a node in a level must reach this level too."""
    before, below = KEY_BYTES + LEVEL_BYTES, NUMBER_BYTES * (1 + 2 * neighbours)
    of_level = NUMBER_BYTES * (1 + neighbours)
    sizes = before + below + levels * of_level
    expect(sizes.sum() == len(content), "its length does not fit")
    starts = np.cumsum(sizes) - sizes
    found = []
    for chunk in parts(starts):
        heads = content[chunk[:, None] + np.arange(before)]
        found.append(np.ascontiguousarray(heads[:, :KEY_BYTES]).view("<u8")[:, 0])
        of_nodes = np.ascontiguousarray(heads[:, KEY_BYTES:]).view("<i2")[:, 0]
        expect((of_nodes == levels[np.searchsorted(starts, chunk)]).all(), "its levels do not fit")
        check_neighbours(content, chunk + before, 2 * neighbours, levels, 0)
    if found:
        expect((np.sort(np.concatenate(found)) == np.sort(keys).astype(np.uint64)).all(), "its keys are others")
    for level in range(1, int(levels.max(initial=0)) + 1):
        for chunk in parts(starts[levels >= level] + before + below + (level - 1) * of_level):
            check_neighbours(content, chunk, neighbours, levels, level)


def check_neighbours(content: np.ndarray, starts: np.ndarray, most: int, levels: np.ndarray, level: int) -> None:
    numbers = content[starts[:, None] + np.arange(NUMBER_BYTES * (1 + most))].view("<u4")
    expect((numbers[:, 0] <= most).all(), "a node has too many neighbours")
    named = numbers[:, 1:][np.arange(most) < numbers[:, :1]]
    expect((named < len(levels)).all() and (levels[named] >= level).all(), "a node has neighbours that are not there")


def parts(starts: np.ndarray) -> list[np.ndarray]:
    return [starts[first : first + NODES_AT_ONCE] for first in range(0, len(starts), NODES_AT_ONCE)]


def expect(fact: object, otherwise: str) -> None:
    if not fact:
        raise GraphFileError(otherwise)

"""Graph files are looked through before usearch, which would follow any number in them, opens them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_ngsan.retrieval.graph_file import GraphFileError, check_graph_file
from tests.tables import each_row

usearch = pytest.importorskip("usearch.index")
DIMENSION, NEIGHBOURS = 4, 3
KEYS = np.arange(40) * 2
PLACES = {"matrix": 0, "head": 8 + 40 * DIMENSION, "graph": 8 + 40 * DIMENSION + 64}
LEVELS = PLACES["graph"] + 40


def graph_of(folder, keys=KEYS, dtype="i8", dimension=DIMENSION):
    """A graph of few neighbours, and so of several levels."""
    graph = usearch.Index(ndim=dimension, metric="ip", dtype=dtype, connectivity=NEIGHBOURS, expansion_add=16)
    if len(keys):
        vectors = np.random.default_rng(0).standard_normal((len(keys), dimension)).astype(np.float32)
        graph.add(keys.astype(np.uint64), vectors, threads=1)
    graph.save(str(folder / "graph"))
    return folder / "graph"


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    file = graph_of(tmp_path_factory.mktemp("graph"))
    return file.read_bytes()


def check(file, keys=KEYS, dimension=DIMENSION, precision="i8", neighbours=NEIGHBOURS):
    check_graph_file(file, keys, dimension, precision, neighbours)


@each_row("number", [0, 1, 2, 40, 500])
@each_row("precision", ["i8", "f16"])
def test_what_usearch_writes_is_right(number, precision, tmp_path):
    keys = np.random.default_rng(1).permutation(3 * number)[:number]
    check(graph_of(tmp_path, keys, precision), keys, precision=precision)


@each_row("other", [{"keys": KEYS + 1}, {"keys": KEYS[1:]}, {"dimension": 5}, {"precision": "f16"}, {"neighbours": 4}])
def test_a_graph_of_other_embeddings_is_refused(other, tmp_path):
    with pytest.raises(GraphFileError):
        check(graph_of(tmp_path), **other)


def numbers_of(content):
    """Where each node begins, by its level."""
    levels = np.frombuffer(content[LEVELS : LEVELS + 80], "<i2").astype(int)
    sizes = 10 + 4 * (1 + 2 * NEIGHBOURS) + levels * 4 * (1 + NEIGHBOURS)
    return dict(zip((LEVELS + 80 + np.cumsum(sizes) - sizes).tolist(), levels.tolist(), strict=True))


def test_every_number_that_leads_elsewhere_is_found(content, tmp_path):
    starts = numbers_of(content)
    assert max(starts.values()) >= 2
    forged = []
    for start, level in starts.items():
        for of_level in range(level + 1):
            room = start + 10 + (of_level > 0) * 4 * (1 + 2 * NEIGHBOURS) + max(of_level - 1, 0) * 4 * (1 + NEIGHBOURS)
            count = int.from_bytes(content[room : room + 4], "little")
            forged += [(room, 1000, 4), *((room + 4 * (1 + number), 40, 4) for number in range(count))]
        forged += [(start, 1, 8), (start + 8, level + 1, 2)]
    forged += [(LEVELS, 2**15 - 1, 2), (PLACES["graph"] + 24, 99, 8), (PLACES["graph"] + 32, 40, 8)]
    forged += [(0, 41, 4), (4, 2**31, 4), (PLACES["head"] + 33, 99, 8), (PLACES["graph"], 2**63, 8)]
    lowest = next(number for number, level in enumerate(starts.values()) if level == 0)
    forged += [(start + 10 + 4 * (1 + 2 * NEIGHBOURS) + 4, lowest, 4) for start, level in starts.items() if level]
    for place, number, num_bytes in forged:
        changed = bytearray(content)
        changed[place : place + num_bytes] = number.to_bytes(num_bytes, "little")
        (tmp_path / "graph").write_bytes(changed)
        with pytest.raises(GraphFileError):
            check(tmp_path / "graph")


@given(data=st.data())
def test_no_bytes_lead_out_of_the_file(content, tmp_path_factory, data):
    """What passes can be searched."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    changed = changed[: data.draw(st.just(len(content)) | st.integers(0, len(content)))]
    file = tmp_path_factory.getbasetemp() / "any_graph"
    file.write_bytes(changed)
    try:
        check(file)
    except GraphFileError:
        return
    graph = usearch.Index.restore(str(file), view=True)
    for query in np.eye(DIMENSION, dtype=np.float32):
        assert set(graph.search(query, 10).keys.tolist()) <= set(KEYS.tolist())

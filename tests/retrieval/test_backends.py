"""Backends of search: all give the same hits, are built once, resumed, and raise one-sentence errors."""

import dataclasses
import shutil
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_ngsan.retrieval import (
    IndexDescription,
    IndexFolder,
    IndexFolderError,
    check_backend,
    milvus,
    nearest,
    open_backend,
    search,
    search_current,
)

DIMENSION, NUM_ITEMS = 8, 50
GENERATOR = np.random.default_rng(0)
VECTORS = GENERATOR.standard_normal((NUM_ITEMS, DIMENSION)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
VECTORS[7] = VECTORS[30]  # equal scores
QUERIES = VECTORS[[3, 30, 49]]
DESCRIPTION = IndexDescription("some/model", "print", "photos", "sum", DIMENSION, NUM_ITEMS, 20)
UNREADABLE = 25


def written(folder, description=DESCRIPTION) -> IndexFolder:
    """An index of three shards in which one item has no embedding."""
    index = IndexFolder.begin(folder, description)
    for number in index.missing_shards():
        items = [item for item in index.shard_items(number) if item != UNREADABLE]
        skipped = [("25.jpg", "broken")] if UNREADABLE in index.shard_items(number) else []
        index.write_shard(number, [f"{item}.jpg" for item in items], VECTORS[items], skipped)
    return IndexFolder.open(folder)


def index_of(folder, names, vectors, **about) -> IndexFolder:
    """An index of one shard."""
    changed = {"num_items": max(len(names), 1), "items_per_shard": max(len(names), 1), "source_checksum": folder.name}
    index = IndexFolder.begin(folder, dataclasses.replace(DESCRIPTION, **changed))
    index.write_shard(0, names, vectors, **about)
    return IndexFolder.open(folder)


def names_of(hits) -> list[list[str]]:
    return [[hit.name for hit in row] for row in hits]


@pytest.fixture
def spec(tmp_path):
    pytest.importorskip("milvus_lite", reason="needs an extra")
    return f"milvus:{tmp_path}/milvus.db"


def test_milvus_finds_what_exact_search_finds(spec, tmp_path):
    index = written(tmp_path / "index")
    open_backend(index, spec).add()
    for top_k in (1, 5, 100):
        exact, actual = search(index, QUERIES, top_k), search(index, QUERIES, top_k, spec)
        assert [[hit.name for hit in hits] for hits in actual] == [[hit.name for hit in hits] for hits in exact]
        assert [[hit.place for hit in hits] for hits in actual] == [[hit.place for hit in hits] for hits in exact]
        for hits, expected in zip(actual, exact, strict=True):
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-6)
    assert [hit.name for hit in actual[1][:2]] == ["7.jpg", "30.jpg"]
    assert {hit.place for hit in actual[0]} == {*range(NUM_ITEMS)} - {39}, "the second shard has one row less"


def test_nothing_is_taken_up_twice_and_the_rest_is_continued(spec, tmp_path, monkeypatch, caplog):
    index = written(tmp_path / "index")
    backend = open_backend(index, spec)
    calls, was_interrupted = [], []
    monkeypatch.setattr(milvus, "ROWS_AT_ONCE", 6)
    upsert = backend.client.upsert

    def interrupted(collection, rows, **options):
        if len(calls) > 30 and not was_interrupted:
            was_interrupted.append(True)
            raise KeyboardInterrupt
        calls.extend(row["name"] for row in rows)
        return upsert(collection, rows, **options)

    backend.client.upsert = interrupted
    with pytest.raises(KeyboardInterrupt):
        backend.add()
    with pytest.raises(IndexFolderError, match="lacks embeddings"):
        search(index, QUERIES, 1, spec)
    backend.add()
    assert {*calls} == {*index.items()[0]} and len(calls) < 1.5 * NUM_ITEMS, "finished shards are sent once"
    assert not [record for record in caplog.records if record.name.startswith("grpc")]
    assert backend.count() == NUM_ITEMS - 1
    expected = len(calls)
    backend.add()
    assert len(calls) == expected
    assert [hits[0].name for hits in search(index, QUERIES, 1, spec)] == ["3.jpg", "7.jpg", "49.jpg"]


def test_what_another_index_holds_is_not_searched(spec, tmp_path):
    index = written(tmp_path / "index")
    open_backend(index, spec).add()
    other = written(tmp_path / "other", dataclasses.replace(DESCRIPTION, fingerprint="another"))
    with pytest.raises(IndexFolderError, match="other"):
        search(other, QUERIES, 1, spec)
    open_backend(other, spec).add()
    assert [hits[0].name for hits in search(other, QUERIES, 1, spec)] == ["3.jpg", "7.jpg", "49.jpg"]


def test_milvus_without_its_client(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(IndexFolderError, match=r"hf-ngsan\[milvus\]"):
        open_backend(written(tmp_path / "index"), "milvus:http://localhost:1")


def test_a_collection_of_milvus_that_lacks_embeddings_is_not_searched(tmp_path):
    pytest.importorskip("milvus_lite")
    index, spec = written(tmp_path / "index"), f"milvus:{tmp_path / 'milvus.db'}"
    backend = open_backend(index, spec)
    backend.add()
    [record] = backend.client.query(backend.collection, filter='name == "3.jpg"', output_fields=["key"])
    backend.client.delete(backend.collection, ids=[record["key"]])
    with pytest.raises(IndexFolderError, match="48 of 49"):
        search(index, QUERIES, 1, spec)
    open_backend(index, spec).add()
    assert search(index, QUERIES[:1], 1, spec)[0][0].name == "3.jpg"


STATES = {
    "before": ([f"{item}.jpg" for item in range(20)], VECTORS[:20]),
    "after": (["new.jpg", *(f"{item}.jpg" for item in range(2, 20))], VECTORS[[40, 2, 41, *range(4, 20)]]),
}
"""An index and its update: 0 and 1 are removed, 3 has changed, and a new item is first."""


def test_a_collection_takes_the_place_of_an_earlier_one(tmp_path, monkeypatch):
    """Until the new index replaces the old one, the old one is searched; a kill leaves both."""
    pytest.importorskip("milvus_lite")
    spec = f"milvus:{tmp_path / 'milvus.db'}"
    before, after = (index_of(tmp_path / name, *state) for name, state in STATES.items())
    open_backend(before, spec).add()
    with monkeypatch.context() as killing:
        backend = open_backend(after, spec)
        killing.setattr(backend.client, "describe_index", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            backend.add(before)
    assert names_of(search(before, QUERIES, 3, spec)) == names_of(search(before, QUERIES, 3, "exact"))
    open_backend(after, spec).add()
    for top_k in (3, 100):
        for index in (before, after):
            assert names_of(search(index, QUERIES, top_k, spec)) == names_of(search(index, QUERIES, top_k, "exact"))
    for _ in range(2):
        open_backend(after, spec).drop_earlier()
        assert backend.client.list_collections() == [backend.collection] and backend.count() == 19
    with pytest.raises(IndexFolderError, match=r"lacks embeddings of .*before"):
        search(before, QUERIES, 3, spec)
    open_backend(before, spec).add()  # a copy of the folder, which was not updated
    open_backend(after, spec).drop_earlier()
    for index in (before, after):
        assert names_of(search(index, QUERIES, 3, spec)) == names_of(search(index, QUERIES, 3, "exact"))


def test_filters_go_by_names_captions_and_columns(tmp_path):
    pytest.importorskip("milvus_lite")
    names, spec = ["a/1.jpg", "a/2.jpg", "b/3.jpg", "b/3.jpg"], f"milvus:{tmp_path / 'milvus.db'}"
    columns = [{"width": 300, "place": "sea"}, {"width": 600}, *[{"width": 700, "key": 5, "place": "hill"}] * 2]
    captions = [["a dog", "a black dog"], ["a cat"], ["a dog"], ["a dog"]]
    index = index_of(tmp_path / "index", names, VECTORS[[0, 1, 2, 2]], captions=captions, columns=columns)
    open_backend(index, spec).add()
    for filter, places in (
        ("", {0, 1, 2, 3}),
        ("width > 500", {1, 2, 3}),  # two equal rows
        ('captions like "%dog%" and width < 500', {0}),
        ('name like "a/%"', {0, 1}),
        ('place == "hill"', {2, 3}),
        ("depth > 1", set()),
    ):
        [hits] = search(index, VECTORS[:1], 9, spec, filter)
        assert {hit.place for hit in hits} == places, filter
    with pytest.raises(IndexFolderError, match="'depth > 1'"):
        search_current([index], DESCRIPTION.fingerprint, VECTORS[:1], 9, spec, "depth > 1")
    with pytest.raises(IndexFolderError, match="correct the filter"):
        search(index, VECTORS[:1], 9, spec, "width >")
    with pytest.raises(IndexFolderError, match="filter"):
        search(index, VECTORS[:1], 9, "exact", "width > 500")


@pytest.mark.slow
def test_milvus_finds_as_many_images_as_are_asked_for(tmp_path):
    """A graph or the searched cells may contain fewer rows."""
    pytest.importorskip("milvus_lite")
    vectors = np.random.default_rng(0).standard_normal((300, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = index_of(tmp_path / "index", [f"{number}.jpg" for number in range(300)], vectors)
    for kind, params in (("AUTOINDEX", {}), ("HNSW", {"M": 4}), ("IVF_FLAT", {"nlist": 100})):
        spec = f"milvus:{tmp_path / kind}.db"
        backend = open_backend(index, spec)
        backend.add()
        client, collection = backend.client, backend.collection
        client.release_collection(collection)
        if params:  # as a user changes it
            client.drop_index(collection, "embedding")
            made = client.prepare_index_params()
            made.add_index("embedding", index_type=kind, metric_type="IP", params={"params": params})
            client.create_index(collection, made)
        client.load_collection(collection)  # builds the graph or the cells
        assert open_backend(index, spec).index_type == kind
        for top_k in (96, 280, 300):
            actual = search(index, vectors[:20], top_k, spec)
            assert [len(hits) for hits in actual] == [top_k] * 20, (kind, top_k)
            assert [hits[0].place for hits in actual] == list(range(20)), (kind, top_k)


def shards_of(folder) -> list[IndexFolder]:
    """The embeddings of `written`, in three separate indexes."""
    rows = [item for item in range(NUM_ITEMS) if item != UNREADABLE]
    parts = [rows[:5], rows[5:29], rows[29:]]
    return [
        index_of(folder / f"part-{number}", [f"{item}.jpg" for item in part], VECTORS[part])
        for number, part in enumerate(parts)
    ]


def test_several_indexes_are_searched_as_one(tmp_path):
    full, parts = written(tmp_path / "whole"), shards_of(tmp_path)
    for top_k in (1, 4, 100):
        actual, expected = search(parts, QUERIES, top_k), search(full, QUERIES, top_k)
        assert names_of(actual) == names_of(expected)
        for hits, others in zip(actual, expected, strict=True):
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in others], abs=1e-6)
            assert [[name for name, *_ in parts[hit.index_number].items_at(np.array([hit.place]))] for hit in hits] == [
                [hit.name] for hit in hits
            ]
    [hits] = search(parts[::-1], QUERIES[1:2], 2)
    assert [(hit.name, hit.index_number) for hit in hits] == [("30.jpg", 0), ("7.jpg", 1)], "equal scores, by index"
    assert hits[0].score == hits[1].score
    assert search_current(parts, DESCRIPTION.fingerprint, QUERIES[:1], 1)[0].name == "3.jpg"
    with pytest.raises(IndexFolderError, match=r"part-0.*some/model"):
        search_current(parts, "another", QUERIES[:1], 1)


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    num_queries=st.integers(1, 3),
    top_k=st.integers(1, 9),
    dtype=st.sampled_from([np.float16, np.float32]),
    data=st.data(),
)
def test_hits_are_those_of_a_sorted_list(sizes, num_queries, top_k, dtype, data):
    """Small integers, so that many products are equal."""
    numbers = st.integers(-2, 2)
    rows = [data.draw(st.lists(st.tuples(numbers, numbers), min_size=size, max_size=size)) for size in sizes]
    parts = [np.array(part, dtype).reshape(-1, 2) for part in rows]
    queries = np.array(data.draw(st.lists(st.tuples(numbers, numbers), min_size=num_queries, max_size=num_queries)))
    scores, actual = nearest(parts, queries.astype(np.float32), top_k)
    everything = [row for part in rows for row in part]
    for query, values, places in zip(queries.tolist(), scores, actual, strict=True):
        products = [query[0] * x + query[1] * y for x, y in everything]
        expected = sorted(range(len(everything)), key=lambda place: (-products[place], place))[:top_k]
        assert places.tolist() == expected
        assert values.tolist() == [products[place] for place in expected]


def test_a_backend_that_is_not_known():
    check_backend("milvus:http://localhost:1")
    for spec in ("faiss", "milvus:"):
        with pytest.raises(IndexFolderError, match=f"'{spec}'"):
            check_backend(spec)


def test_an_index_without_any_embedding(spec, tmp_path):
    index = index_of(tmp_path / "index", [], np.zeros((0, DIMENSION)), skipped=[("1.jpg", "broken")])
    open_backend(index, spec).add()
    assert search(index, QUERIES, 3, spec) == [[], [], []]
    with pytest.raises(IndexFolderError, match="no images"):
        search_current([index], DESCRIPTION.fingerprint, QUERIES[:1], 3, spec)


def test_an_index_that_has_grown_meanwhile_is_searched_anew(tmp_path):
    before = index_of(tmp_path / "index", *STATES["before"])
    shutil.rmtree(tmp_path / "index")
    after = index_of(tmp_path / "index", *STATES["after"])
    actual = search_current([before], DESCRIPTION.fingerprint, QUERIES[:1], 3)
    assert [actual] == search(after, QUERIES[:1], 3)

"""Backends of search: the same hits from every one, made once, continued, and one sentence for what cannot be used."""

import dataclasses
import json
import shutil
import socket
import sys

import numpy as np
import pytest

from hf_ngsan.retrieval import IndexDescription, IndexFolder, IndexFolderError, milvus, open_backend, search
from hf_ngsan.retrieval.approximate import GRAPH
from tests.retrieval.test_index_folder import with_new_manifest

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


@pytest.fixture(
    params=["usearch", "usearch:f16", pytest.param("milvus:{folder}/milvus.db", marks=pytest.mark.slow)],
    ids=lambda spec: spec.partition("/")[0],
)
def spec(request, tmp_path):
    pytest.importorskip("usearch" if "usearch" in request.param else "milvus_lite", reason="needs an extra")
    return request.param.format(folder=tmp_path)


def test_every_backend_finds_what_the_exact_one_finds(spec, tmp_path):
    index = written(tmp_path / "index")
    open_backend(index, spec).add()
    for top_k in (1, 5, 100):
        exact, found = search(index, QUERIES, top_k), search(index, QUERIES, top_k, spec)
        assert [[hit.name for hit in hits] for hits in found] == [[hit.name for hit in hits] for hits in exact]
        assert [[hit.place for hit in hits] for hits in found] == [[hit.place for hit in hits] for hits in exact]
        for hits, expected in zip(found, exact, strict=True):
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-6)
    assert [hit.name for hit in found[1][:2]] == ["7.jpg", "30.jpg"]
    assert {hit.place for hit in found[0]} == {*range(NUM_ITEMS)} - {39}, "the second shard has one row less"


def test_a_graph_reaches_every_embedding_and_is_always_the_same(tmp_path):
    """Added by several threads, some of 5,000 embeddings are reached by no search."""
    pytest.importorskip("usearch")
    number = 5000
    vectors = np.random.default_rng(1).standard_normal((number, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    graphs = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        index = IndexFolder.begin(folder, dataclasses.replace(DESCRIPTION, num_items=number, items_per_shard=number))
        index.write_shard(0, [f"{item}.jpg" for item in range(number)], vectors, [])
        open_backend(IndexFolder.open(folder), "usearch").add()
        graphs.append((folder / "usearch" / GRAPH).read_bytes())
    assert graphs[0] == graphs[1]
    hits = search(IndexFolder.open(folder), vectors[:1], number, "usearch")[0]
    assert {hit.place for hit in hits} == set(range(number))


def test_nothing_is_taken_up_twice_and_the_rest_is_continued(spec, tmp_path, monkeypatch, caplog):
    index = written(tmp_path / "index")
    backend = open_backend(index, spec)
    calls, was_interrupted = [], []
    if spec.startswith("milvus"):
        monkeypatch.setattr(milvus, "ROWS_AT_ONCE", 6)
        upsert = backend.client.upsert

        def interrupted(collection, rows, **options):
            calls.append([row["place"] for row in rows])
            if len(calls) == 6 and not was_interrupted:
                was_interrupted.append(True)
                raise KeyboardInterrupt
            return upsert(collection, rows, **options)

        backend.client.upsert = interrupted
        with pytest.raises(KeyboardInterrupt):
            backend.add()
        calls.clear()
        backend.add()
        assert calls[0][0] == 20, "the first shard is there already"
        assert not [record for record in caplog.records if record.name.startswith("grpc")]
        assert backend.count(0, 100) == NUM_ITEMS - 1
    else:
        write = backend.write
        backend.write = lambda folder: (calls.append(folder), write(folder))
        backend.add()
    expected = len(calls)
    backend.add()
    assert len(calls) == expected
    assert [hits[0].name for hits in search(index, QUERIES, 1, spec)] == ["3.jpg", "7.jpg", "49.jpg"]


def test_what_another_index_holds_is_not_searched(spec, tmp_path):
    index = written(tmp_path / "index")
    open_backend(index, spec).add()
    other = written(tmp_path / "other", dataclasses.replace(DESCRIPTION, fingerprint="another"))
    if spec.startswith("usearch"):
        (tmp_path / "index" / "usearch").rename(tmp_path / "other" / "usearch")
    with pytest.raises(IndexFolderError, match="other"):
        search(other, QUERIES, 1, spec)
    open_backend(other, spec).add()
    assert [hits[0].name for hits in search(other, QUERIES, 1, spec)] == ["3.jpg", "7.jpg", "49.jpg"]


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_graph_is_refused_and_made_anew(tmp_path, damage):
    """A changed number of the graph's copy of the embeddings is found when all of it is read."""
    pytest.importorskip("usearch")
    index = written(tmp_path / "index")
    open_backend(index, "usearch").add()
    file = tmp_path / "index" / "usearch" / "graph.usearch"
    content = bytearray(file.read_bytes())
    content[100] ^= 255
    file.unlink() if damage == "gone" else file.write_bytes(content[:100] if damage == "cut" else content)
    with pytest.raises(IndexFolderError, match=r"graph\.usearch"):
        open_backend(index, "usearch").open(verify=damage == "changed")
    open_backend(index, "usearch").add()
    assert len(search(index, QUERIES, 4, "usearch")[2]) == 4
    open_backend(index, "usearch").open(verify=True)


@pytest.mark.parametrize(
    ("content", "fact"),
    [("", "usearch"), ("[" * 100_000, "usearch"), ("[]", "usearch"), ('{"checksum": 1}', "usearch")],
)
def test_a_graph_that_says_nothing_of_its_embeddings(tmp_path, content, fact):
    pytest.importorskip("usearch")
    index = written(tmp_path / "index")
    open_backend(index, "usearch").add()
    (tmp_path / "index" / "usearch" / "content.json").write_text(content)
    with_new_manifest(tmp_path / "index" / "usearch")
    with pytest.raises(IndexFolderError, match=fact):
        search(index, QUERIES, 1, "usearch")


def test_a_forged_graph_is_refused_and_made_anew(tmp_path):
    usearch = pytest.importorskip("usearch.index")
    index = written(tmp_path / "index")
    open_backend(index, "usearch").add()
    folder = tmp_path / "index" / "usearch"
    other = usearch.Index(ndim=DIMENSION, metric="ip", dtype="i8", connectivity=32, expansion_add=128)
    other.add(np.arange(1000, 1000 + NUM_ITEMS - 1).astype(np.uint64), VECTORS[1:])
    for name in (GRAPH, "nothing"):  # keys of no embedding, and no graph at all
        other.save(str(folder / GRAPH)) if name == GRAPH else (folder / GRAPH).write_bytes(b"")
        with_new_manifest(folder)
        with pytest.raises(IndexFolderError, match=r"graph\.usearch"):
            search(index, QUERIES, 1, "usearch")
    open_backend(index, "usearch").add()
    assert [hits[0].name for hits in search(index, QUERIES, 1, "usearch")] == ["3.jpg", "7.jpg", "49.jpg"]


@pytest.mark.parametrize(
    "spec",
    [
        *("", "faiss", "exact:x", "usearch:", "usearch:i4", "milvus", "milvus:"),
        pytest.param("milvus:x.txt", marks=pytest.mark.slow),
    ],
)
def test_specs_of_no_backend(tmp_path, spec):
    if spec == "milvus:x.txt":
        pytest.importorskip("pymilvus")
    if spec == "usearch:i4":
        pytest.importorskip("usearch")
    with pytest.raises(IndexFolderError) as error:
        open_backend(written(tmp_path / "index"), spec)
    known = (
        ("f16", "i8")
        if spec == "usearch:i4"
        else (".db",)
        if spec == "milvus:x.txt"
        else ("exact", "usearch", "milvus")
    )
    assert spec.removeprefix("milvus:") in str(error.value) and all(name in str(error.value) for name in known)


@pytest.mark.parametrize(
    ("spec", "package", "extra"),
    [("usearch", "usearch.index", "retrieval"), ("milvus:http://localhost:1", "pymilvus", "milvus")],
)
def test_a_package_that_is_missing(tmp_path, monkeypatch, spec, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(IndexFolderError, match=rf"hf-ngsan\[{extra}\]"):
        open_backend(written(tmp_path / "index"), spec)


@pytest.mark.slow
@pytest.mark.parametrize("answers", [False, True])
def test_a_server_of_milvus_that_does_not_answer(tmp_path, monkeypatch, answers):
    pytest.importorskip("pymilvus")
    monkeypatch.setattr(milvus, "SECONDS_TO_CONNECT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not answers:
            server.close()
        with pytest.raises(IndexFolderError, match=f"127.0.0.1:{port}"):
            open_backend(written(tmp_path / "index"), f"milvus:http://127.0.0.1:{port}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["schema.json", "manifest.json", "*.parquet", "*.idx", ""])
def test_a_damaged_file_of_milvus_gets_one_sentence_and_nothing_else(tmp_path, name, capfd, caplog):
    pytest.importorskip("milvus_lite")
    index = written(tmp_path / "index")
    open_backend(index, f"milvus:{tmp_path / 'whole.db'}").add()
    damaged = tmp_path / "damaged.db"
    if name:
        shutil.copytree(tmp_path / "whole.db", damaged)
        for file in damaged.rglob(name):
            file.write_bytes(b"[" * 2000)
    else:
        damaged.write_bytes(b"SQLite format 3\0" + bytes(1000))  # of Milvus Lite 2
    capfd.readouterr()
    if name == "*.idx" and not list(damaged.rglob(name)):
        pytest.skip("the graph was not written yet")
    with pytest.raises(IndexFolderError, match=r"damaged\.db") as error:
        search(index, QUERIES, 1, f"milvus:{damaged}")
    assert "\n" not in str(error.value) and "hf-ngsan index" in str(error.value)
    assert "".join(capfd.readouterr()) == "" and caplog.text == ""


@pytest.mark.slow
def test_a_collection_of_milvus_that_lacks_embeddings_is_not_searched(tmp_path):
    pytest.importorskip("milvus_lite")
    index, spec = written(tmp_path / "index"), f"milvus:{tmp_path / 'milvus.db'}"
    backend = open_backend(index, spec)
    backend.add()
    backend.client.delete(backend.collection, ids=[3])
    with pytest.raises(IndexFolderError, match="48 of the 49"):
        search(index, QUERIES, 1, spec)
    open_backend(index, spec).add()
    assert search(index, QUERIES[:1], 1, spec)[0][0].name == "3.jpg"


def test_an_index_remembers_what_it_was_made_for(tmp_path):
    index = written(tmp_path / "index")
    assert index.backend == "exact"
    index.backend = "usearch"
    assert IndexFolder.open(tmp_path / "index").backend == "usearch"
    for content in ("", "[]", json.dumps({"backend": "exact"})):
        (tmp_path / "index" / "backend.json").write_text(content)
        with pytest.raises(IndexFolderError, match=r"backend\.json"):
            search(index, QUERIES, 1)

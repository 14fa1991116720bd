import dataclasses
import json

import numpy as np
import pytest

from hf_ngsan.retrieval import IndexDescription, IndexFolder, IndexFolderError, search

DESCRIPTION = IndexDescription(
    model="some/model",
    fingerprint="print",
    source="photos",
    source_checksum="sum",
    dimension=3,
    num_items=5,
    items_per_shard=2,
)
VECTORS = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)


def written(folder, leave_out=()) -> IndexFolder:
    index = IndexFolder.begin(folder, DESCRIPTION)
    for number in index.missing_shards():
        if number not in leave_out:
            items = index.shard_items(number)
            index.write_shard(number, [f"{item}.jpg" for item in items], VECTORS[items.start : items.stop])
    return index


def test_an_index_finds_what_was_put_into_it(tmp_path):
    written(tmp_path / "index")
    index = IndexFolder.open(tmp_path / "index")
    assert index.description == DESCRIPTION
    assert index.items() == ([f"{item}.jpg" for item in range(5)], [])
    [hits] = search(index, VECTORS[3:4], top_k=2)
    assert hits[0].name == "3.jpg"
    assert hits[0].score == pytest.approx(1, abs=1e-3)
    assert len(search(index, VECTORS[:2], top_k=9)[1]) == 5


def test_what_was_begun_is_continued(tmp_path):
    written(tmp_path / "index", leave_out=[1])
    with pytest.raises(IndexFolderError, match="1 of its 3 parts"):
        IndexFolder.open(tmp_path / "index")
    (tmp_path / "index" / ".incomplete-shard-000001").mkdir()
    assert IndexFolder.begin(tmp_path / "index", DESCRIPTION).missing_shards() == [1]
    written(tmp_path / "index")
    assert IndexFolder.open(tmp_path / "index").items()[0] == [f"{item}.jpg" for item in range(5)]


def test_items_without_an_embedding_are_remembered(tmp_path):
    index = IndexFolder.begin(tmp_path / "index", dataclasses.replace(DESCRIPTION, num_items=2))
    index.write_shard(0, ["a.jpg"], VECTORS[:1], [("b.jpg", "b.jpg cannot be read.")])
    assert index.items() == (["a.jpg"], [["b.jpg", "b.jpg cannot be read."]])
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(1, 3\)"):
        index.write_shard(0, ["a.jpg"], VECTORS[:2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fingerprint": "other"}, "another model, some/model"),
        ({"source_checksum": "other"}, "other images"),
        ({"num_items": 6}, "other images"),
    ],
)
def test_an_index_of_something_else_is_not_continued(tmp_path, change, message):
    written(tmp_path / "index")
    with pytest.raises(IndexFolderError, match=message):
        IndexFolder.begin(tmp_path / "index", dataclasses.replace(DESCRIPTION, **change))


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        with pytest.raises(IndexFolderError, match="something else"):
            IndexFolder.begin(tmp_path / name, DESCRIPTION)
    with pytest.raises(IndexFolderError, match=r"index\.json is missing"):
        IndexFolder.open(tmp_path / "full")
    with pytest.raises(FileNotFoundError, match="none"):
        IndexFolder.open(tmp_path / "none")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "[" * 100_000, json.dumps({**dataclasses.asdict(DESCRIPTION), "num_items": "5"})]
)
def test_a_damaged_description(tmp_path, content):
    written(tmp_path / "index")
    (tmp_path / "index" / "index.json").write_text(content)
    with pytest.raises(IndexFolderError, match=r"index\.json"):
        IndexFolder.open(tmp_path / "index")


@pytest.mark.parametrize("change", [{"version": 99}, {"dimension": 0}])
def test_a_description_that_cannot_be_used(tmp_path, change):
    written(tmp_path / "index")
    changed = dataclasses.asdict(dataclasses.replace(DESCRIPTION, **change))
    (tmp_path / "index" / "index.json").write_text(json.dumps(changed))
    with pytest.raises(IndexFolderError, match="index the images again"):
        IndexFolder.open(tmp_path / "index")


@pytest.mark.parametrize(
    "change", [{"dimension": 4}, {"num_items": 4}, {"items_per_shard": 10**25}, {"num_items": 10**25}]
)
def test_a_description_of_other_shards(tmp_path, change):
    index = written(tmp_path / "index")
    changed = dataclasses.asdict(dataclasses.replace(DESCRIPTION, **change))
    (tmp_path / "index" / "index.json").write_text(json.dumps(changed))
    dimension = changed["dimension"]
    with pytest.raises(IndexFolderError, match=str(tmp_path / "index")):
        search(IndexFolder.open(tmp_path / "index"), np.ones((1, dimension), np.float32), 1)
    assert index.missing_shards() == []


def test_damaged_embeddings_and_queries_of_another_dimension(tmp_path):
    index = written(tmp_path / "index")
    with pytest.raises(IndexFolderError, match="dimension 3"):
        search(index, np.ones((1, 4), np.float32), 1)
    file = tmp_path / "index" / "shard-000001" / "embeddings.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 255
    file.write_bytes(content)
    with pytest.raises(IndexFolderError, match="shard-000001"):
        search(index, VECTORS[:1], 1)

import dataclasses

import numpy as np
import pytest
from PIL import Image

from hf_ngsan.io.files import FileStamp
from hf_ngsan.retrieval import IndexDescription, IndexFolder, IndexFolderError, search
from hf_ngsan.tasks import inspect
from tests.data.images.photos import encoded
from tests.tables import each_row

DESCRIPTION = IndexDescription("some/model", "print", "photos", "sum", dimension=3, num_items=5, items_per_shard=2)
VECTORS = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)


def written(folder, leave_out=()) -> IndexFolder:
    index = IndexFolder.begin(folder, DESCRIPTION)
    for number in index.missing_shards():
        if number not in leave_out:
            items = index.shard_items(number)
            index.write_shard(number, [f"{item}.jpg" for item in items], VECTORS[items.start : items.stop])
    return index


def test_what_was_begun_is_continued(tmp_path):
    written(tmp_path / "index", leave_out=[1])
    with pytest.raises(IndexFolderError, match="1 of its 3"):
        IndexFolder.open(tmp_path / "index")
    (tmp_path / "index" / ".incomplete-shard-000001").mkdir()
    assert IndexFolder.begin(tmp_path / "index", DESCRIPTION).missing_shards() == [1]
    written(tmp_path / "index")
    assert IndexFolder.open(tmp_path / "index").items()[0] == [f"{item}.jpg" for item in range(5)]


def test_items_without_an_embedding_are_remembered(tmp_path):
    index = IndexFolder.begin(tmp_path / "index", dataclasses.replace(DESCRIPTION, num_items=2))
    index.write_shard(0, ["a.jpg"], VECTORS[:1], [("b.jpg", "b.jpg cannot be read.")])
    assert index.items() == (["a.jpg"], [["b.jpg", "b.jpg cannot be read."]])


@each_row(
    ("change", "message"),
    [
        ({"fingerprint": "other"}, "some/model"),
        ({"source_checksum": "other"}, "photos"),
        ({"num_items": 6}, "5 of photos"),
    ],
)
def test_an_index_of_something_else_is_not_continued(tmp_path, change, message):
    written(tmp_path / "index")
    with pytest.raises(IndexFolderError, match=message):
        IndexFolder.begin(tmp_path / "index", dataclasses.replace(DESCRIPTION, **change))


def picture(side=8, kind="JPEG") -> bytes:
    return encoded(Image.new("RGB", (side, side)), kind)


def with_everything(folder, description=DESCRIPTION) -> IndexFolder:
    index = IndexFolder.begin(folder, description)
    for number in index.missing_shards():
        items = index.shard_items(number)
        index.write_shard(
            number,
            [f"{item}.jpg" for item in items],
            VECTORS[items.start : items.stop],
            thumbnails=[picture() for _ in items],
            stamps={item: FileStamp(1, 2, "sum") for item in items},
            captions=[[f"caption {item}", "another"] for item in items],
        )
    return index


def test_a_cut_file_is_found_when_its_shard_is_opened(tmp_path):
    with_everything(tmp_path)
    for name in ("embeddings.npy", "items.json", "thumbnails.zip"):
        file = tmp_path / "shard-000001" / name
        content = file.read_bytes()
        file.write_bytes(content[:-1])
        uses = (lambda: search(IndexFolder.open(tmp_path), VECTORS, 1), lambda: written(tmp_path))
        for use in (*uses, lambda: inspect(tmp_path)):
            with pytest.raises(IndexFolderError, match=rf"shard-000001.*{name}"):
                use()
        file.write_bytes(content)
    assert len(search(IndexFolder.open(tmp_path), VECTORS, 1)) == 5


def test_hits_have_the_captions_of_the_index(tmp_path):
    index = with_everything(tmp_path / "index")
    assert search(index, VECTORS[3:4], 1)[0][0].captions == ("caption 3", "another")
    captions = [texts for _, texts, _ in index.items_at(np.array([4, 0]))]
    assert captions == [("caption 4", "another"), ("caption 0", "another")]
    written(tmp_path / "plain")
    assert search(IndexFolder.open(tmp_path / "plain"), VECTORS[:1], 1)[0][0].captions == ()

import dataclasses
import io
import json
import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image

from hf_ngsan.commands.inspect import lines_of_index
from hf_ngsan.io import folders
from hf_ngsan.io.files import FileStamp, sha256
from hf_ngsan.io.folders import MANIFEST
from hf_ngsan.retrieval import IndexDescription, IndexFolder, IndexFolderError, open_backend, search
from tests.tables import each_row

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
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(1, 3\)"):
        index.write_shard(0, ["a.jpg"], VECTORS[:2])


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


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        with pytest.raises(IndexFolderError, match=name):
            IndexFolder.begin(tmp_path / name, DESCRIPTION)
    with pytest.raises(IndexFolderError, match=r"index\.json"):
        IndexFolder.open(tmp_path / "full")
    with pytest.raises(FileNotFoundError, match="none"):
        IndexFolder.open(tmp_path / "none")


@each_row("content", ["", "[]", "{}", "[" * 100_000, json.dumps({**dataclasses.asdict(DESCRIPTION), "num_items": "5"})])
def test_a_damaged_description(tmp_path, content):
    written(tmp_path / "index")
    (tmp_path / "index" / "index.json").write_text(content)
    with pytest.raises(IndexFolderError, match=r"index\.json"):
        IndexFolder.open(tmp_path / "index")


@each_row(("change", "fact"), [({"version": 99}, "99"), ({"dimension": 0}, "0")])
def test_a_description_that_cannot_be_used(tmp_path, change, fact):
    written(tmp_path / "index")
    changed = dataclasses.asdict(dataclasses.replace(DESCRIPTION, **change))
    (tmp_path / "index" / "index.json").write_text(json.dumps(changed))
    with pytest.raises(IndexFolderError, match=fact):
        IndexFolder.open(tmp_path / "index")


@each_row("change", [{"dimension": 4}, {"num_items": 4}, {"items_per_shard": 10**25}, {"num_items": 10**25}])
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


def picture(side=8, kind="JPEG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (side, side)).save(file, kind)
    return file.getvalue()


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


def use(folder) -> None:
    """Reads all that is in an index."""
    index = IndexFolder.open(folder)
    search(index, VECTORS[:1], 5)
    assert len(index.items()[0]) == len(index.stamps()) == 5
    index.captions_at(np.arange(5))
    for place in range(5):
        index.thumbnail_at(place)


def with_new_manifest(shard) -> None:
    """Writes the manifest that fits what the files are now."""
    sums = {
        file.name: {"bytes": file.stat().st_size, "sha256": sha256(file)}
        for file in shard.iterdir()
        if file.name != MANIFEST
    }
    (shard / MANIFEST).write_text(json.dumps(sums))


def with_items(**changes):
    def change(shard):
        items = json.loads((shard / "items.json").read_text())
        (shard / "items.json").write_text(json.dumps({**items, **changes}))

    return change


def without(key):
    def change(shard):
        items = json.loads((shard / "items.json").read_text())
        del items[key]
        (shard / "items.json").write_text(json.dumps(items))

    return change


def with_text(text):
    return lambda shard: (shard / "items.json").write_text(text)


def with_array(array):
    return lambda shard: np.save(shard / "embeddings.npy", array, allow_pickle=True)


def with_bytes(name, change):
    return lambda shard: (shard / name).write_bytes(change((shard / name).read_bytes()))


def with_thumbnails(contents, names=("000000.jpg", "000001.jpg"), compression=zipfile.ZIP_STORED):
    def change(shard):
        with zipfile.ZipFile(shard / "thumbnails.zip", "w", compression) as archive:
            for name, content in zip(names, contents, strict=True):
                archive.writestr(name, content)

    return change


def copied(shard):
    shutil.rmtree(shard)
    shutil.copytree(shard.with_name("shard-000000"), shard)


def copied_as_earlier_versions_wrote_it(shard):
    copied(shard)
    without("shard")(shard)


def of_another_index(shard):
    other = with_everything(
        shard.parent.with_name("another"), dataclasses.replace(DESCRIPTION, source_checksum="others")
    )
    shutil.rmtree(shard)
    shutil.copytree(other.shard_folder(1), shard)


HALVES = VECTORS[2:4].astype(np.float16)
DAMAGES = {
    "another shard": copied,
    "another shard without its number": copied_as_earlier_versions_wrote_it,
    "a shard of another index": of_another_index,
    "fewer rows": with_array(HALVES[:1]),
    "more rows": with_array(np.concatenate([HALVES, HALVES])),
    "another dimension": with_array(HALVES[:, :2]),
    "another type": with_array(VECTORS[2:4]),
    "one dimension": with_array(HALVES[0]),
    "no numbers": with_array(np.full((2, 3), np.nan, np.float16)),
    "objects": with_array(np.array([[None] * 3] * 2)),
    "a cut array": with_bytes("embeddings.npy", lambda content: content[:-2]),
    "a shape of terabytes": with_bytes("embeddings.npy", lambda content: content.replace(b"(2, 3)", b"(99999999, 3)")),
    "no array": with_bytes("embeddings.npy", lambda content: b"no array"),
    "no embeddings": lambda shard: (shard / "embeddings.npy").unlink(),
    "no items": lambda shard: (shard / "items.json").unlink(),
    "no thumbnails": lambda shard: (shard / "thumbnails.zip").unlink(),
    "no JSON": with_text("{"),
    "nested JSON": with_text("[" * 100_000),
    "a list": with_text("[]"),
    "no names": without("names"),
    "no stamps": without("stamps"),
    "names of numbers": with_items(names=[1, 2]),
    "a name that no file can have": with_items(names=["a", "\ud800"]),
    "a text of names": with_items(names="ab"),
    "more names": with_items(names=["a", "b", "c"]),
    "skipped texts": with_items(skipped=["ab"]),
    "more skipped": with_items(skipped=[["a", "b"]]),
    "stamps of others": with_items(stamps={"0": [1, 2, "sum"]}),
    "stamps without a sum": with_items(stamps={"2": [1, 2]}),
    "a list of stamps": with_items(stamps=[[1, 2, "sum"]]),
    "fewer captions": with_items(captions=[["a"]]),
    "captions that are no texts": with_items(captions=[[1], [2]]),
    "no archive": with_bytes("thumbnails.zip", lambda content: b"no archive"),
    "fewer thumbnails": with_thumbnails([picture()], ["000000.jpg"]),
    "thumbnails of others": with_thumbnails([picture()] * 2, ["a.jpg", "b.jpg"]),
    "a changed thumbnail": with_bytes("thumbnails.zip", lambda content: content.replace(b"JFIF", b"JFXF")),
    "thumbnails that are no images": with_thumbnails([b"no image"] * 2),
    "thumbnails that are PNG": with_thumbnails([picture(kind="PNG")] * 2),
    "cut thumbnails": with_thumbnails([picture()[:-200]] * 2),
    "thumbnails of many pixels": with_thumbnails([picture(2000)] * 2),
    "thumbnails that unpack to more": with_thumbnails([bytes(2**21)] * 2, compression=zipfile.ZIP_DEFLATED),
}


@each_row("damage", DAMAGES)
def test_a_shard_is_read_as_a_strangers_whatever_its_manifest_says(tmp_path, damage):
    with_everything(tmp_path / "index")
    use(tmp_path / "index")
    shard = tmp_path / "index" / "shard-000001"
    DAMAGES[damage](shard)
    with_new_manifest(shard)
    with pytest.raises(IndexFolderError, match="shard-000001") as error:
        use(tmp_path / "index")
    assert "\n" not in str(error.value) and "index" in str(error.value)
    assert "first problem" in "\n".join(lines_of_index(tmp_path / "index"))


def test_a_search_reads_the_embeddings_and_the_names_of_its_hits_alone(tmp_path, monkeypatch):
    with_everything(tmp_path)
    for archive in tmp_path.glob("*/thumbnails.zip"):
        archive.write_bytes(bytes(archive.stat().st_size))
    read = []
    monkeypatch.setattr(folders, "sha256", lambda file: read.append(str(file.relative_to(tmp_path))) or sha256(file))
    index = IndexFolder.open(tmp_path)
    assert read == []
    for _ in range(2):
        assert search(index, VECTORS[3:4], 1)[0][0].name == "3.jpg"
    assert read == [f"shard-{number:06d}/embeddings.npy" for number in range(3)] + ["shard-000001/items.json"]
    with pytest.raises(IndexFolderError, match=r"thumbnails\.zip"):
        index.shard(1).verify()
    with pytest.raises(IndexFolderError, match=r"thumbnails\.zip"):
        IndexFolder.begin(tmp_path, DESCRIPTION)


def test_a_graph_reads_the_embeddings_of_its_candidates_alone(tmp_path, monkeypatch):
    pytest.importorskip("usearch")
    index = with_everything(tmp_path)
    open_backend(index, "usearch").add()
    read = []
    monkeypatch.setattr(folders, "sha256", lambda file: read.append(file.name) or sha256(file))
    assert search(IndexFolder.open(tmp_path), VECTORS[3:4], 1, "usearch")[0][0].name == "3.jpg"
    assert read == ["content.json", "items.json"]
    file = tmp_path / "shard-000001" / "embeddings.npy"
    file.write_bytes(file.read_bytes()[:-2] + np.float16("nan").tobytes())
    with pytest.raises(IndexFolderError, match="shard-000001"):
        search(IndexFolder.open(tmp_path), VECTORS[3:4], 1, "usearch")


def test_a_file_that_the_manifest_does_not_name_is_not_read(tmp_path):
    with_everything(tmp_path / "index")
    manifest = tmp_path / "index" / "shard-000001" / MANIFEST
    content = json.loads(manifest.read_text())
    del content["items.json"]
    manifest.write_text(json.dumps(content))
    with pytest.raises(IndexFolderError, match=r"items\.json"):
        use(tmp_path / "index")


def test_hits_have_the_captions_of_the_index(tmp_path):
    index = with_everything(tmp_path / "index")
    assert search(index, VECTORS[3:4], 1)[0][0].captions == ("caption 3", "another")
    assert index.captions_at(np.array([4, 0])) == [("caption 4", "another"), ("caption 0", "another")]
    written(tmp_path / "plain")
    assert search(IndexFolder.open(tmp_path / "plain"), VECTORS[:1], 1)[0][0].captions == ()

"""An untrusted dataset can open only its own files."""

import contextlib
import functools
import http.server
import json
import threading
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Audio, Dataset, Features, Image, List, Value, Video
from huggingface_hub.hf_api import DatasetInfo

from hf_ngsan.cli import main
from hf_ngsan.data import DataError, load_data
from hf_ngsan.data.images import OwnFiles
from hf_ngsan.data.images.files import decode_image
from hf_ngsan.extraction import list_images
from tests.data.images.photos import index_of, lists, picture_bytes, write_image_folder, write_parquet
from tests.data.rows import dataset_of, make_row

STRUCT = pa.struct({"bytes": pa.binary(), "path": pa.string()})


@pytest.fixture
def outside(tmp_path):
    """A folder of images next to that of the dataset, also served over HTTP, and the requests for them."""
    requests = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            super().do_GET()

        do_HEAD = do_GET

    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a.png").write_bytes(picture_bytes(1))
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("a.png", picture_bytes(1))
    write_parquet(lists(), folder / "rows.parquet")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    server.server_close()


def foreign_paths(data, outside, url):
    (data / "link.png").symlink_to(outside / "a.png")
    (data / "folder").symlink_to(outside)
    (data / "link.zip").symlink_to(outside / "a.zip")
    return [
        f"{url}/a.png",
        f"zip://a.png::{url}/a.zip",
        f"simplecache::{url}/a.png",
        f"filecache::{url}/a.png",
        f"blockcache::{url}/a.png",
        f"zip://a.png::simplecache::{url}/a.zip",
        f"zip://{url}/a.png::{data}/inside.zip",
        f"HTTP{url[4:]}/a.png",
        "s3://bucket/a.png",
        "hf://datasets/someone/else/a.png",
        f"file://{outside}/a.png",
        f"local://{outside}/a.png",
        f"dir://a.png::file://{outside}",
        f"zip://a.png::{outside}/a.zip",
        f"zip://a.png::file://{outside}/a.zip",
        "zip://a.png::../outside/a.zip",
        "zip://a.png::link.zip",
        f"{outside}/a.png",
        "../outside/a.png",
        "x/../../outside/a.png",
        f"{data}/../outside/a.png",
        f"{data}-other/../outside/a.png",
        "link.png",
        "folder/a.png",
    ]


def read_all(spec):
    """Reads the images of a dataset in every way; returns whether one of them could be read."""
    try:
        rows = load_data(spec, "train")
        listed = list_images(spec, split="train")
    except DataError:
        return False
    actual = []
    for read in (lambda: rows[0]["image"], lambda: listed.read(0), lambda: list(rows)):
        with contextlib.suppress(DataError):
            actual.append(read())
    return bool(actual)


def test_no_path_in_rows_leads_out_of_the_dataset(tmp_path, outside, monkeypatch):
    folder, url, requests = outside
    data = tmp_path / "data"
    data.mkdir()
    (data / "inside.zip").write_bytes((folder / "a.zip").read_bytes())
    monkeypatch.chdir(folder)
    for number, path in enumerate(foreign_paths(data, folder, url)):
        with pytest.raises(DataError, match="row 0"):
            OwnFiles(str(data)).find(path, "row 0")
        file = data / "train.parquet"
        for kind, (column, keys) in enumerate(
            (
                (pa.array([{"bytes": None, "path": path}], STRUCT), ""),
                (pa.array([{"bytes": None, "path": path}, {"bytes": picture_bytes(0), "path": "a.png"}], STRUCT), ""),
                (pa.array([path]), ",image=image"),
            )
        ):
            pq.write_table(pa.table({"image": column, "captions": [["a"]] * len(column)}), file)
            spec = (f"images:{data}{keys}", f"images:{file}{keys},streaming=true")[(number + kind) % 2]
            assert not read_all(spec), (path, spec)
        file.unlink()
        photos = tmp_path / f"photos{number}"
        write_image_folder(photos, [{"file_name": path, "caption": "a"}], (".csv", ".jsonl")[number % 2])
        (photos / "link.png").symlink_to(folder / "a.png")
        (photos / "folder").symlink_to(folder)
        for streaming in ("", ",streaming=true"):
            assert not read_all(f"images:{photos}{streaming}"), (path, streaming)
    assert not requests


def test_columns_of_other_media_are_left_out(tmp_path, outside, cache):
    folder, url, requests = outside
    plain, saved, file = dataset_of([make_row()]), tmp_path / "saved", tmp_path / "pairs" / "train.parquet"
    media = {"frames": List(Image()), "deep": {"a": {"b": Image()}}, "clip": Video(), "sound": Audio()}
    features = Features({**plain.features, **media, "video": Value("string")})
    plain.save_to_disk(str(saved))
    info = json.loads((saved / "dataset_info.json").read_text())
    (saved / "dataset_info.json").write_text(json.dumps({**info, "features": features.to_dict()}))
    file.parent.mkdir()
    for place in (f"{url}/a.png", f"{folder}/a.png"):
        stored, table = {"bytes": None, "path": place}, plain.data.table
        foreign = {"frames": [stored], "deep": {"a": {"b": stored}}, "clip": stored, "sound": stored, "video": place}
        for name, value in foreign.items():
            table = table.append_column(name, pa.array([value], features.arrow_schema.field(name).type))
        [shard] = saved.glob("*.arrow")
        with pa.OSFile(str(shard), "wb") as opened, pa.ipc.new_stream(opened, table.schema) as writer:
            writer.write_table(table)
        [row] = load_data(f"features:{saved}", "train")
        assert row.keys() == make_row().keys() and main(["inspect", str(saved)]) == 0
        schema = Features({"en": Image(), "de": Value("string")}).arrow_schema
        pq.write_table(pa.table({"en": [stored], "de": ["Hund"]}, schema=schema), file)
        with pytest.raises(DataError, match="'en'"):
            load_data(f"parallel:{file.parent},source=en,target=de", "train")
    assert not requests


def test_own_files_are_read_by_any_path(tmp_path, monkeypatch):
    data = tmp_path / "data"
    (data / "a::b").mkdir(parents=True)
    (data / "a::b" / "c.png").write_bytes(picture_bytes(1))
    (data / "link.png").symlink_to("a::b/c.png")
    with zipfile.ZipFile(data / "inside.zip", "w") as archive:
        archive.writestr("c.png", picture_bytes(1))
    monkeypatch.chdir(tmp_path)
    for path in (
        *("a::b/c.png", f"{data}/a::b/c.png", "./x/../a::b/c.png", "../data/a::b/c.png", "link.png"),
        *("zip://c.png::inside.zip", f"zip://c.png::{data}/inside.zip"),
    ):
        structs = pa.array([{"bytes": picture_bytes(0), "path": "http://x"}, {"bytes": None, "path": path}], STRUCT)
        pq.write_table(pa.table({"image": structs, "captions": [["a"], ["b"]]}), data / "train.parquet")
        for spec in ("images:data", f"images:{data}/train.parquet,streaming=true"):
            assert [index_of(row["image"]) for row in load_data(spec, "train")] == [0, 1], (path, spec)
        (data / "train.parquet").unlink()


def test_files_of_the_cache_of_the_hub_are_links_to_its_blobs(tmp_path):
    repository = tmp_path / "datasets--mine--photos"
    snapshot = repository / "snapshots" / "0f"
    for folder in (repository / "blobs", snapshot):
        folder.mkdir(parents=True)
    (repository / "blobs" / "1").write_bytes(picture_bytes(1))
    (snapshot / "a.png").symlink_to("../../blobs/1")
    (snapshot / "a.txt").write_text("a cat")
    assert index_of(load_data(f"images:{snapshot}", "train")[0]["image"]) == 1


def test_files_of_a_dataset_on_the_hub_are_there_or_in_the_caches(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    user_files, there = OwnFiles("user/photos"), "hf://datasets/user/photos@0f"
    for path in (f"{there}/a.jpg", f"zip://a.jpg::{there}/a.zip", f"{tmp_path}/cache/a.jpg", f"{tmp_path}/datasets/a"):
        assert user_files.find(path, "row 0") == path
    for path in (
        *("hf://datasets/user/photos2@0f/a.jpg", "hf://datasets/user/a.jpg", f"{there}/../../b@0f/a.jpg", "/etc/hosts"),
        *(f"{there}/a.jpg::http://127.0.0.1/a.jpg", f"{tmp_path}/a.jpg", "http://127.0.0.1/a.jpg", "../a.jpg"),
    ):
        with pytest.raises(DataError, match="row 0"):
            user_files.find(path, "row 0")
    card = DatasetInfo(id="user/photos", cardData={"configs": [{"config_name": "a", "data_files": "http://x/a.csv"}]})
    monkeypatch.setattr("hf_ngsan.data.images.sources.HfApi.dataset_info", lambda *_, **__: card)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    with pytest.raises(DataError, match="card"):
        load_data("images:user/photos", "train")


def test_saved_datasets_and_cards_name_no_other_files(tmp_path, outside, capsys):
    folder, url, requests = outside
    features = Features({"image": Image(), "image_id": Value("int64")})
    for number, path in enumerate((f"{url}/a.png", f"zip://a.png::{url}/a.zip", f"{folder}/a.png")):
        saved = tmp_path / f"saved{number}"
        Dataset.from_dict({"image": [picture_bytes(0)], "image_id": [1]}, features=features).save_to_disk(str(saved))
        [shard] = saved.glob("*.arrow")
        column = pa.array([{"bytes": None, "path": path}], STRUCT)
        table = pa.table({"image": column, "image_id": [1]}, schema=features.arrow_schema)
        with pa.OSFile(str(shard), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        for spec in (f"images:{saved}", f"features:{saved}"):
            with pytest.raises(DataError):
                load_data(spec, "train")[0]
        assert main(["inspect", str(saved)]) == 2
        with pytest.raises(DataError):
            decode_image({"bytes": None, "path": path}, Image()) if "://" in path else load_data(spec, "train")
    state = json.loads((saved / "state.json").read_text())
    state["_data_files"] = [{"filename": "../saved0/data-00000-of-00001.arrow"}]
    (saved / "state.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match="saved0"):
        load_data(f"images:{saved}", "train")
    for number, place in enumerate((f"{url}/rows.parquet", "../outside/rows.parquet", f"{folder}/*.parquet")):
        data = tmp_path / f"card{number}"
        data.mkdir()
        write_parquet(lists(), data / "a.parquet")
        for name, fence in (("README.md", "---\n"), (".huggingface.yaml", "")):
            (data / name).write_text(f"{fence}configs:\n- config_name: default\n  data_files: '{place}'\n{fence}")
            for keys in ("", ",streaming=true", ",config=default"):
                with pytest.raises(DataError, match="card"):
                    load_data(f"images:{data}{keys}", "train")
            (data / name).unlink()
    assert not requests

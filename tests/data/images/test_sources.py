import time

from hf_ngsan.data import load_data
from tests.data.facts import fails_naming
from tests.data.images.photos import lists, parquet_folder, picture_bytes, table, write_parquet


def test_one_of_several_configurations(tmp_path):
    for name, index in (("small", 1), ("large", 2)):
        write_parquet(lists().select([index]), tmp_path / "mine" / name / "train.parquet")
    lines = ["---", "configs:"]
    for name in ("small", "large"):
        lines += [f"- config_name: {name}", f"  data_files: {name}/*.parquet"]
    (tmp_path / "mine" / "README.md").write_text("\n".join([*lines, "---", ""]))
    assert load_data(f"images:{tmp_path / 'mine'},config=large", "train")["captions"][:] == [["a cow", "one cow"]]
    with fails_naming(tmp_path, "small", "large"):
        load_data(f"images:{tmp_path / 'mine'}", "train")
    with fails_naming(tmp_path, "huge"):
        load_data(f"images:{tmp_path / 'mine'},config=huge", "train")


def test_a_changed_folder_is_read_again(tmp_path):
    folder = parquet_folder(tmp_path / "mine")
    assert load_data(f"images:{folder}", "train")["captions"][0] == ["a cat", "one cat"]
    time.sleep(0.01)
    write_parquet(table({"image": [0], "captions": [["a bat"]]}), folder / "train-00000-of-00001.parquet")
    assert load_data(f"images:{folder}", "train")["captions"][:] == [["a bat"]]


def test_a_folder_is_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.setattr("hf_ngsan.data.images.sources.check_hub_dataset", None)
    assert len(load_data(f"images:{parquet_folder(tmp_path / 'mine')}", "train")) == 3


def test_a_hub_name_offline_is_one_sentence():
    with fails_naming("nobody/photos"):
        load_data("images:nobody/photos", "train")


METADATA = {
    "a.csv": "file_name,caption\n1.png,a dog, a cat\n",
    "b.csv": "name,caption\n1.png,a dog\n",
    "c.csv": "file_name,caption\n1.png,a dog\n,a cat\n",
    "d.jsonl": '{"file_name": "1.png", "caption": "a"}\n',
}


def test_what_cannot_be_read_without_loss_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("no table")
    write_parquet(lists(), tmp_path / "stars" / "train[1].parquet")
    write_parquet(table({"one": [0], "captions": [["a"]], "image_id": [1]}, image="one"), tmp_path / "b.parquet")
    for source, facts in {
        f"{tmp_path}/a.txt": ["a.txt"],
        "no/such/folder": ["no/such/folder"],
        f"{tmp_path}/stars": ["train[1].parquet"],
        f"{tmp_path}/b.parquet,image=two": ["'two'", "one"],
        f"{tmp_path}/b.parquet,captions=image_id": ["'image_id'", "captions"],
    }.items():
        with fails_naming(*facts):
            load_data(f"images:{source}", "train")
    for name, content in METADATA.items():
        folder = tmp_path / name
        (folder / "more").mkdir(parents=True)
        (folder / "1.png").write_bytes(picture_bytes(0))
        (folder / f"metadata{folder.suffix}").write_text(content)
        if name == "d.jsonl":
            (folder / "more" / "metadata.csv").write_text("file_name,text\n../1.png,a\n")
        with fails_naming(folder, "metadata"):
            load_data(f"images:{folder}", "train")
    for place, named in (("", "sub\\\\1.png"), ("sub", "1.png")):  # a Windows path, and again
        (tmp_path / "two" / "sub").mkdir(parents=True, exist_ok=True)
        (tmp_path / "two" / "sub" / "1.png").write_bytes(picture_bytes(0))
        line = f'{{"file_name": "{named}", "caption": "a"}}\n'
        (tmp_path / "two" / place / "metadata.jsonl").write_text(line)
        if not place:
            assert load_data(f"images:{tmp_path / 'two'}", "train")[0]["captions"] == ["a"]
    with fails_naming("both have"):
        load_data(f"images:{tmp_path / 'two'}", "train")

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import datasets
import pytest
from datasets import Dataset, Image

from hf_ngsan.data import DataError, load_data
from tests.data.facts import fails_naming
from tests.data.images.photos import (
    lists,
    one_row_a_caption,
    parquet_folder,
    picture_bytes,
    table,
    write_image_folder,
    write_parquet,
)


def without(column):
    return lambda folder: write_parquet(lists().remove_columns(column), folder / "train.parquet")


def with_column(**columns):
    def write(folder):
        dataset = lists()
        for name, values in columns.items():
            dataset = dataset.add_column(name, values)
        return write_parquet(dataset, folder / "train.parquet")

    return write


def two_images(folder):
    dataset = lists().rename_column("image", "left")
    dataset = dataset.add_column("right", dataset.cast_column("left", Image(decode=False))["left"][:])
    return write_parquet(dataset.cast_column("right", Image()), folder / "train.parquet")


def no_image_in_a_row(folder):
    data = [{"bytes": picture_bytes(0), "path": None}, None]
    dataset = Dataset.from_dict({"image": data, "captions": [["a"], ["b"]]}).cast_column("image", Image())
    return write_parquet(dataset, folder / "train.parquet")


def image_on_the_web(folder):
    data = [{"bytes": None, "path": "https://example.org/a.jpg"}]
    return write_parquet(Dataset.from_dict({"image": data, "captions": [["a"]]}), folder / "train.parquet")


def cut_parquet(folder):
    file = write_parquet(lists(), folder / "train.parquet")
    file.write_bytes(file.read_bytes()[:-50])
    return folder


def cut_pages(folder):
    file = write_parquet(lists(), folder / "train.parquet")
    content = bytearray(file.read_bytes())
    content[4:400] = bytes(396)
    file.write_bytes(content)
    return folder


def cut_arrow(folder):
    lists().save_to_disk(folder)
    file = next(folder.glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:300])
    return folder


def nothing(folder):
    folder.mkdir()
    return folder


def a_script(folder):
    folder.mkdir()
    (folder / f"{folder.name}.py").write_text("raise SystemExit('run')")
    return folder


def a_text_file(folder):
    nothing(folder)
    (folder / "captions.txt").write_text("a cat")
    return folder / "captions.txt"


def unknown_file_in_the_metadata(folder):
    return write_image_folder(folder, [{"file_name": "photo_9.png", "text": "a cat"}], ".jsonl")


def missing_file_name(folder):
    dataset = one_row_a_caption().add_column("file_name", ["a", "b", "b", None, "c", "a"])
    return write_parquet(dataset, folder / "train.parquet")


def pattern_in_the_path(folder):
    return parquet_folder(folder.with_name("mine[1]"))


@pytest.mark.parametrize(
    ("make", "keys", "facts"),
    [
        (without("image"), "", ["no column of images", "captions", "image=COLUMN"]),
        (without("image"), ",image=captions", ["'captions'", "image="]),
        (two_images, "", ["left, right", "image=COLUMN"]),
        (lambda folder: with_column(size=[1, 2, 3])(folder), ",captions=size", ["'size'", "int64", "captions="]),
        (without("captions"), ",captions=captions", ["'captions'", "there are image"]),
        (without("captions"), ",captions=image", ["'image'", "Image", "captions="]),
        (without("captions"), ",captions=", ["captions=VALUE"]),
        (with_column(text=["a", "b", "c"]), ",captions=text+texd", ["'texd'", "image, captions, text"]),
        (with_column(text=["a", "b", "c"]), ",image=foto", ["'foto'", "image, captions, text"]),
        (with_column(text=["a", "b", "c"]), ",imgae=image", ["'imgae'", "image, captions, config"]),
        (no_image_in_a_row, "", ["row 1", "no image"]),
        (image_on_the_web, "", ["row 0", "https://example.org/a.jpg"]),
        (missing_file_name, "", ["row 3", "file_name"]),
        (cut_parquet, "", ["Parquet"]),
        (cut_pages, "", ["cannot be read"]),
        (cut_arrow, "", ["cannot be read"]),
        (nothing, "", ["data files"]),
        (a_script, "", ["scripts"]),
        (a_text_file, "", ["captions.txt", ".parquet"]),
        (unknown_file_in_the_metadata, "", ["photo_9.png"]),
        (pattern_in_the_path, "", ["mine[1]", "rename"]),
        (lambda folder: folder, "", ["does not exist"]),
    ],
)
def test_what_is_no_dataset_of_images_is_fails_naming(tmp_path, make, keys, facts):
    source = make(tmp_path / "mine")
    with fails_naming(tmp_path, *facts):
        load_data(f"images:{source}{keys}", "train")


def test_a_split_without_rows(tmp_path):
    datasets.DatasetDict(train=lists(), test=lists().select([])).save_to_disk(str(tmp_path / "mine"))
    with fails_naming(tmp_path):
        load_data(f"images:{tmp_path / 'mine'}", "test")


@pytest.mark.parametrize(
    ("make", "split", "facts"),
    [
        (parquet_folder, "test", ["'test'", "train, validation"]),
        (lambda folder: write_parquet(lists(), folder / "all.parquet"), "validation", ["'validation'", "train"]),
        (with_column(split=["train", "restval", "train"]), "test", ["'test'", "train, restval"]),
    ],
)
def test_an_unknown_split_lists_those_there_are(tmp_path, make, split, facts):
    with fails_naming(tmp_path, *facts):
        load_data(f"images:{make(tmp_path / 'mine')}", split)


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


def test_a_folder_whose_name_holds_commas_colons_and_equals_signs(tmp_path):
    folder = parquet_folder(tmp_path / "a: b,image=c,d")
    assert len(load_data(f"images:{folder}", "train")) == 3
    assert len(load_data(f"images:{folder},image=image,captions=captions", "train")) == 3


def test_a_changed_folder_is_read_again(tmp_path):
    folder = parquet_folder(tmp_path / "mine")
    assert load_data(f"images:{folder}", "train")["captions"][0] == ["a cat", "one cat"]
    time.sleep(0.01)
    write_parquet(table({"image": [0], "captions": [["a bat"]]}), folder / "train-00000-of-00001.parquet")
    assert load_data(f"images:{folder}", "train")["captions"][:] == [["a bat"]]


@pytest.mark.parametrize("place", ["a file", "/proc/nowhere"])
def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch, place):
    folder = parquet_folder(tmp_path / "mine")
    cache = Path(place)
    if place == "a file":
        cache = tmp_path / "cache"
        cache.write_text("")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    with fails_naming(folder, cache, "HF_DATASETS_CACHE"):
        load_data(f"images:{folder}", "train")


def test_loading_says_nothing_where_there_is_no_terminal(tmp_path, capfd):
    good, bad = parquet_folder(tmp_path / "mine"), cut_parquet(tmp_path / "cut")
    capfd.readouterr()
    load_data(f"images:{good}", "train")
    with pytest.raises(DataError):
        load_data(f"images:{bad}", "train")
    assert capfd.readouterr() == ("", "")
    assert not datasets.are_progress_bars_disabled()


def load_in_a_process(spec: str, **environment: str) -> str:
    code = (
        "import sys\n"
        "from hf_ngsan.data import DataError, load_data\n"
        "try:\n"
        "    load_data(sys.argv[1], 'train')\n"
        "except DataError as error:\n"
        "    print(error)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"} | environment
    command = [sys.executable, "-c", code, spec]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout


def test_a_hub_name_offline_fails_at_once():
    message = load_in_a_process("images:nobody/photos", HF_HUB_OFFLINE="1")
    assert "nobody/photos" in message and message.count("\n") == 1


def test_a_hub_name_without_a_network_fails_at_once():
    with socket.socket() as port:  # bound, but nobody listens
        port.bind(("127.0.0.1", 0))
        message = load_in_a_process(
            "images:nobody/photos", HF_ENDPOINT=f"http://127.0.0.1:{port.getsockname()[1]}", NO_PROXY="*"
        )
    assert "nobody/photos" in message and "HF_HUB_OFFLINE=1" in message and message.count("\n") == 1

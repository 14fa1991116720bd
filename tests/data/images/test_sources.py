import os
import socket
import subprocess
import sys
import time

import datasets
import pytest
from datasets import Dataset

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
from tests.tables import each_row


def parquet(dataset):
    return lambda folder: write_parquet(dataset, folder / "train.parquet")


def with_columns(**columns):
    dataset = lists()
    for name, values in columns.items():
        dataset = dataset.add_column(name, values)
    return parquet(dataset)


def stored(*values, name="image"):
    """A column of images as they are stored."""
    return Dataset.from_dict({name: list(values), "captions": [["a"]] * len(values)})


def two_images(folder):
    first, second = (stored({"bytes": picture_bytes(0), "path": None}, name=name) for name in ("left", "right"))
    both = datasets.concatenate_datasets([first, second.remove_columns("captions")], axis=1)
    return parquet(both)(folder)


def damaged(folder, change):
    """A folder with a Parquet file whose content is changed."""
    file = write_parquet(lists(), folder / "train.parquet")
    file.write_bytes(change(file.read_bytes()))
    return folder


def cut_arrow(folder):
    lists().save_to_disk(folder)
    file = next(folder.glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:300])
    return folder


def no_rows(folder):
    datasets.DatasetDict(train=lists(), test=lists().select([])).save_to_disk(folder)
    return folder


def with_file(name, text=""):
    """A folder with a text file; "" for none."""

    def write(folder):
        folder.mkdir()
        if name:
            (folder / name).write_text(text)
        return folder / name if name.endswith(".txt") else folder

    return write


@each_row(
    ("make", "keys", "facts"),
    [
        (parquet(lists().remove_columns("image")), "", ["captions", "image=COLUMN"]),
        (parquet(lists().remove_columns("image")), ",image=captions", ["'captions'", "image="]),
        (two_images, "", ["left, right", "image=COLUMN"]),
        (parquet(Dataset.from_dict({"blob": [b"x"], "image": ["a.jpg"]})), "", ["blob, image", "image=COLUMN"]),
        (with_columns(size=[1, 2, 3]), ",captions=size", ["'size'", "int64", "captions="]),
        (parquet(lists().remove_columns("captions")), ",captions=captions", ["'captions'", "there are image"]),
        (parquet(lists().remove_columns("captions")), ",captions=image", ["'image'", "Image", "captions="]),
        (parquet(lists()), ",captions=", ["captions="]),
        (with_columns(text=["a", "b", "c"]), ",captions=text+texd", ["'texd'", "image, captions, text"]),
        (with_columns(text=["a", "b", "c"]), ",image=foto", ["'foto'", "image, captions, text"]),
        (with_columns(text=["a", "b", "c"]), ",imgae=image", ["'imgae'", "image, captions, config"]),
        (parquet(stored({"bytes": picture_bytes(0), "path": None}, None)), "", ["row 1", "image"]),
        (parquet(stored({"bytes": None, "path": "https://example.org/a.jpg"})), "", ["row 0", "https://example.org"]),
        (parquet(stored({"bytes": None, "path": "gone.jpg"})), "", ["gone.jpg"]),
        (
            parquet(one_row_a_caption().add_column("file_name", ["a", "b", "b", None, "c", "a"])),
            "",
            ["row 3", "file_name"],
        ),
        (lambda folder: damaged(folder, lambda content: content[:-50]), "", ["Parquet"]),
        (lambda folder: damaged(folder, lambda content: content[:4] + bytes(396) + content[400:]), "", []),
        (cut_arrow, "", []),
        (with_file(""), "", []),
        (with_file("mine.py", "raise SystemExit('run')"), "", []),
        (with_file("captions.txt", "a cat"), "", ["captions.txt", "Parquet"]),
        (
            lambda folder: write_image_folder(folder, [{"file_name": "photo_9.png", "text": "a cat"}], ".jsonl"),
            "",
            ["photo_9.png"],
        ),
        (lambda folder: parquet_folder(folder.with_name("mine[1]")), "", ["mine[1]", "rename"]),
        (lambda folder: folder, "", ["mine"]),
    ],
)
def test_what_is_no_dataset_of_images_is_named(tmp_path, make, keys, facts):
    source = make(tmp_path / "mine")
    with fails_naming(tmp_path, *facts):
        load_data(f"images:{source}{keys}", "train")


@each_row(
    ("make", "split", "facts"),
    [
        (parquet_folder, "test", ["'test'", "train, validation"]),
        (lambda folder: write_parquet(lists(), folder / "all.parquet"), "validation", ["'validation'", "train"]),
        (with_columns(split=["train", "restval", "train"]), "test", ["'test'", "train, restval"]),
        (no_rows, "test", []),
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


def test_loading_says_nothing_where_there_is_no_terminal(tmp_path, capfd):
    good, bad = parquet_folder(tmp_path / "mine"), damaged(tmp_path / "cut", lambda content: content[:-50])
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


@pytest.mark.slow
def test_a_hub_name_offline_or_without_a_network_fails_at_once():
    message = load_in_a_process("images:nobody/photos", HF_HUB_OFFLINE="1")
    assert "nobody/photos" in message and message.count("\n") == 1
    with socket.socket() as port:  # bound, but nobody listens
        port.bind(("127.0.0.1", 0))
        message = load_in_a_process(
            "images:nobody/photos", HF_ENDPOINT=f"http://127.0.0.1:{port.getsockname()[1]}", NO_PROXY="*"
        )
    assert "nobody/photos" in message and "HF_HUB_OFFLINE=1" in message and message.count("\n") == 1

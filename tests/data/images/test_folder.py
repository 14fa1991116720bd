"""Folders of photographs: no photograph is lost because of its name, and captions may be in text files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_ngsan.data import load_data
from hf_ngsan.data.errors import MissingSplitError
from hf_ngsan.data.images.sources import METADATA
from hf_ngsan.data.inspection import inspect_images
from hf_ngsan.extraction import list_images
from tests.commands.running import prints
from tests.data.facts import fails_naming
from tests.data.images.photos import index_of, lists, picture_bytes, table, write_image_folder, write_parquet
from tests.tables import each_row

NAMES = [
    *("train_station.png", "test-1.png", "b val.png", "dev.png", "eval 2.png", "my training.png", "[1] valid *.png"),
    *("dev/1.png", "train set/2.png", "validation/3.png", "Test/4.png", "x/train/5.png", "testing/6.PNG"),
]


def write(folder: Path, *names: str, **texts: str) -> Path:
    """Pictures whose widths encode their position among the names, and text files."""
    for place, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture_bytes(place))
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


def captions_by_name(source: Path, split: str = "train", keys: str = "") -> dict[str, list[str]]:
    rows = load_data(f"images:{source}{keys}", split)
    for row in rows:
        assert row["image"].size[1] == 10
    return dict(zip(rows["file_name"][:], rows["captions"][:], strict=True))


def test_no_word_in_a_name_makes_a_photograph_vanish(tmp_path, capsys):
    rows = [{"file_name": name, "caption": f"a photo {place}"} for place, name in enumerate(NAMES)]
    expected = {row["file_name"]: [row["caption"]] for row in rows}
    for suffix in (".csv", ".jsonl", ".parquet"):
        folder = write(tmp_path / suffix[1:], *NAMES)
        if suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), folder / METADATA[2])
        else:
            write_image_folder(tmp_path / "other" / suffix, rows, suffix, range(0))
            (tmp_path / "other" / suffix / f"metadata{suffix}").rename(folder / f"metadata{suffix}")
        for keys in ("", ",streaming=true"):
            assert captions_by_name(folder, keys=keys) == expected, (suffix, keys)
        assert len(list_images(f"images:{folder}", split="train")) == len(NAMES)
        findings = inspect_images(folder)
        assert (findings.num_images, dict(findings.splits), findings.notes) == (len(NAMES), {"train": len(NAMES)}, [])
        text = prints(capsys, "inspect", folder)
        assert f"{len(NAMES)} images" in text and "no problem found" in text


def test_names_are_no_splits_without_metadata(tmp_path):
    for names in (
        ["train_station.png", "test-1.png", "b val.png", "dev.png"],
        ["trains 2024/test.png", "train set/val.png", "testing/1.png", "data/train/2.png"],
        ["train/1.png", "plane/2.png", "car/3.png"],  # vehicles
    ):
        folder = write(tmp_path / str(len(names) + len(names[0])), *names)
        rows = load_data(f"images:{folder}", "train")
        assert sorted(rows["file_name"][:]) == sorted(names)
        with pytest.raises(MissingSplitError):
            load_data(f"images:{folder}", "validation")


def test_folders_directly_below_the_root_are_splits_with_everything_in_them(tmp_path):
    names = ["train/test.png", "train/validation/a.png", "Validation/train.png", "test/deep/down/val.png"]
    folder = write(tmp_path / "photos", *names)
    for split, actual in (("train", names[:2]), ("val", names[2:3]), ("test", names[3:])):
        assert load_data(f"images:{folder}", split)["file_name"][:] == actual, split
    both = write(tmp_path / "both", "train/1.png", "val/2.png", "dev/3.png")
    assert load_data(f"images:{both}", "validation")["file_name"][:] == ["dev/3.png", "val/2.png"]
    write_image_folder(folder / "val", [{"file_name": "photo_1.png", "caption": "a dog"}], ".csv", range(1, 2))
    (folder / "Validation").rename(tmp_path / "gone")
    assert captions_by_name(folder, "validation", ",streaming=true") == {"val/photo_1.png": ["a dog"]}
    assert dict(inspect_images(folder).splits) == {"train": 2, "val": 1, "test": 1}
    write(folder, "outside.png")
    with fails_naming("train", "outside.png", "metadata.csv"):
        load_data(f"images:{folder}", "train")


def test_text_files_beside_photographs_hold_their_captions(tmp_path):
    names = ["train_station.jpg", "b.PNG", "c.webp", "deep/d.v2.jpeg", "e.jpg"]
    texts = {"train_station": "\ufeffa train\r\n\r\n two trains \n", "b": "12\x0b\u2028, NA"}
    folder = write(tmp_path / "photos", *names, **texts)
    (folder / "deep" / "d.v2.TXT").write_text("None")
    (folder / "c.caption").write_text("a cow\nnan")
    (folder / "notes.txt").write_text("no caption")
    expected = [["a train", "two trains"], ["12\x0b\u2028, NA"], ["a cow", "nan"], ["None"]]
    for keys in ("", ",streaming=true"):
        with pytest.warns(UserWarning, match="1 of 5 images"):
            assert captions_by_name(folder, keys=keys) == dict(zip(names[:4], expected, strict=True))
    findings = inspect_images(folder)
    assert (findings.num_images, findings.spreads["captions"].total()) == (4, 4)
    assert any("e.jpg" in note for note in findings.notes) and any("notes.txt" in note for note in findings.notes)


def test_captions_of_metadata_are_read_as_they_are(tmp_path):
    captions = ["12", "None", "NA", "nan", "null", '"quoted", with a comma', "007"]
    rows = [{"file_name": f"photo_{n}.png", "caption": text} for n, text in enumerate(captions)]
    for suffix in (".csv", ".jsonl"):
        folder = write_image_folder(tmp_path / suffix[1:], rows, suffix, range(len(rows)))
        assert list(captions_by_name(folder).values()) == [[caption] for caption in captions], suffix
    rows = [{"file_name": "photo_0.png"}, {"file_name": "photo_1.png", "captions": ["a", "b"]}]
    with pytest.warns(UserWarning, match="1 of 2"):
        assert captions_by_name(write_image_folder(tmp_path / "late", rows, ".jsonl")) == {"photo_1.png": ["a", "b"]}


TABLES = {
    "repeated.csv": ("file_name,caption,caption,caption\n0.png,a,b,c\n", ["a", "b", "c"], []),
    "beside.csv": ("file_name,caption_2,caption\n0.png,b,a\n", ["a", "b"], []),
    "spelled.csv": ("file_name , comment ,comment-1\n0.png,a,b\n", ["a", "b"], []),
    "language.csv": ("file_name,caption,caption_de\n0.png,a,ein\n", ["a"], ["captions=caption+caption_de"]),
    "stems.csv": ("file_name,text,caption_1\n0.png,a street sign,a\n", ["a"], ["captions=caption_1+text"]),
    "twice.jsonl": (
        '{"file_name": "0.png", "captions": ["a", "b"]}\n{"file_name": "0.png", "captions": ["c"]}\n',
        "abc",
        [],
    ),
}


@each_row(("name", "text", "expected", "facts"), [(name, *row) for name, row in TABLES.items()])
def test_no_caption_of_a_photograph_is_lost_without_a_word(tmp_path, recwarn, name, text, expected, facts):
    folder = write(tmp_path / name, "0.png")
    (folder / f"metadata{folder.suffix}").write_text(text)
    assert captions_by_name(folder) == {"0.png": list(expected)}
    messages = " ".join(str(warning.message) for warning in recwarn)
    assert all(fact in messages for fact in facts) and bool(messages) == bool(facts)


def test_captions_of_both_text_files_beside_a_photograph(tmp_path):
    folder = write(tmp_path, "a.png", a="one\ntwo")
    (folder / "a.caption").write_text("two\nthree")
    assert captions_by_name(folder) == {"a.png": ["one", "two", "three"]}


def test_no_spelling_of_a_split_makes_a_photograph_vanish(tmp_path):
    names = ["train", "Train", " train ", "val", "validation", "TEST", "restval"]
    folder = write(tmp_path / "photos", *(f"{place}.png" for place in range(len(names))))
    lines = [f'{place}.png,a dog,"{name}"' for place, name in enumerate(names)]
    (folder / "metadata.csv").write_text("\n".join(["file_name,caption,split", *lines]))
    for split, expected in (("train", "012"), ("validation", "34"), ("test", "5")):
        with pytest.warns(UserWarning, match="restval"):
            assert [*captions_by_name(folder, split)] == [f"{place}.png" for place in expected]
    (folder / "metadata.csv").write_text("\n".join(["file_name,caption,split", *lines, "0.png,a cat,"]))
    with fails_naming("1 of 8", "row 7"):
        load_data(f"images:{folder}", "train")


def test_files_that_are_left_out_are_named(tmp_path):
    folder = write(tmp_path / "photos", "0.png", "1.png")
    for name in ("captions.txt", "metadata.tsv", "a.heic", "b.HEIC", "0.txt"):
        (folder / name).write_text("")
    (folder / "metadata.csv").write_text("file_name,caption\n0.png,a dog\n")
    with pytest.warns(UserWarning) as warned:
        load_data(f"images:{folder}", "train")
    unlisted, others = (str(warning.message) for warning in warned)
    assert "1.png" in unlisted and all(name in others for name in ("5 files", "a.heic", "metadata.tsv", ".txt"))
    assert inspect_images(folder).notes[:2] == [unlisted, others]
    write_parquet(lists(), tmp_path / "tables" / "train.parquet")
    (tmp_path / "tables" / "train-more.jsonl").write_text("{}")
    with pytest.warns(UserWarning, match="train-more.jsonl"):
        load_data(f"images:{tmp_path / 'tables'}", "train")


def test_no_table_vanishes_because_of_its_name(tmp_path):
    for names in (["a.parquet", "b.parquet"], ["trains.parquet", "x/validated.parquet"]):
        for place, name in enumerate(names):
            write_parquet(lists().select([place]), tmp_path / names[0][:2] / name)
        assert len(load_data(f"images:{tmp_path / names[0][:2]}", "train")) == 2
    folder = tmp_path / "named"
    for name, split in (("train-0.parquet", "train"), ("b_val.parquet", "val"), ("test/1.parquet", "test")):
        write_parquet(table({"image": [0], "captions": [[split]]}), folder / name)
    for split in ("train", "val", "test"):
        for keys in ("", ",streaming=true"):
            assert load_data(f"images:{folder}{keys}", split)["captions"][:] == [[split]]
    write_parquet(lists(), folder / "more.parquet")
    for keys in ("", ",streaming=true"):
        with fails_naming("more.parquet", "train", "test"):
            load_data(f"images:{folder}{keys}", "train")


def test_image_files_beside_tables_are_no_folder_of_photographs(tmp_path):
    write_parquet(lists(), write(tmp_path, "docs/example.png", "a.png", "b.png") / "train.parquet")
    assert [index_of(row["image"]) for row in load_data(f"images:{tmp_path}", "train")] == [0, 1, 2]


def test_a_card_says_the_splits(tmp_path):
    folder = write(tmp_path / "photos", "first/a.png", "second/test.png")
    card = "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: first/*\n"
    (folder / "README.md").write_text(f"{card}  - split: dev\n    path: second/*\n---\n")
    assert load_data(f"images:{folder}", "validation")["file_name"][:] == ["second/test.png"]


def test_captions_of_other_tables_are_read_as_they_are(tmp_path, cache):
    """CSV files do not mark which values are text."""
    (tmp_path / ".photos").mkdir()
    texts = ["None", "NA", "nan"]
    for number in range(3):
        (tmp_path / ".photos" / f"{number}.png").write_bytes(picture_bytes(number))
    lines = ["image,caption", *(f".photos/{number}.png,{text}" for number, text in enumerate(texts))]
    (tmp_path / "photos.csv").write_text("\n".join(lines))
    for keys in ("", ",streaming=true"):
        actual = load_data(f"images:{tmp_path},image=image{keys}", "train")
        assert actual["captions"][:] == [[text] for text in texts], keys

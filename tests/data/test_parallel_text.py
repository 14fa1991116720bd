"""Parallel text: valid and invalid files and datasets."""

import pytest
from datasets import Dataset, DatasetDict

from hf_ngsan.data import load_data
from tests.data.facts import fails_naming
from tests.tables import each_row

SOURCE = ["A dog.", "Two men.", "A girl\u2028runs.", "A\u00a0house."]
TARGET = ["Ein Hund.", "Zwei Männer.", "Ein Mädchen läuft.", "Ein Haus."]


def write(folder, source=SOURCE, target=TARGET, split="train", end="\n"):
    for language, lines in (("en", source), ("de", target)):
        (folder / f"{split}.{language}").write_bytes("".join(line + end for line in lines).encode())
    return f"parallel:{folder},source=en,target=de"


def pairs(rows) -> list[tuple[int, str, str]]:
    return [(row["line"], row["source"], row["target"]) for row in rows]


@each_row("end", ["\n", "\r\n"])
def test_lines_of_one_number_are_a_pair(tmp_path, end):
    rows = load_data(write(tmp_path, end=end), "train")
    assert pairs(rows) == [*zip(range(1, 5), SOURCE, TARGET, strict=True)]
    assert pairs(load_data(f"parallel:{tmp_path},source=de,target=en", "train"))[0] == (1, "Ein Hund.", "A dog.")


def test_pairs_with_an_empty_side_are_left_out_counted_and_named(tmp_path):
    spec = write(tmp_path, ["A dog.", "", "A girl.", "A house."], ["Ein Hund.", "Zwei.", " \t", "Ein Haus."])
    with pytest.warns(UserWarning, match="pairs .*: 2, lines 2, 3"):
        rows = load_data(spec, "train")
    assert [line for line, *_ in pairs(rows)] == [1, 4]
    with pytest.warns(UserWarning, match="lines 2, 3"):
        load_data(spec, "train")
    with fails_naming(tmp_path):
        load_data(write(tmp_path, [""], [""]), "train")


def test_files_of_different_length_are_refused(tmp_path):
    with fails_naming("train.en", 4, "train.de", 3):
        load_data(write(tmp_path, SOURCE, TARGET[:3]), "train")


def test_files_that_cannot_be_read_are_named(tmp_path):
    spec = write(tmp_path)
    (tmp_path / "train.de").write_bytes(b"Ein Hund.\nZwei M\xe4nner.\nx\nx\n")
    with fails_naming("train.de, line 2"):
        load_data(spec, "train")


@each_row("kind", ["columns", "translation"])
def test_datasets_of_the_library(tmp_path, kind):
    columns = {"en": [*SOURCE, None], "de": [*TARGET, "Nichts."]}
    if kind == "translation":
        lines = zip(*columns.values(), strict=True)
        columns = {"translation": [dict(zip(columns, line, strict=True)) for line in lines]}
    DatasetDict({"train": Dataset.from_dict(columns)}).save_to_disk(tmp_path / "data")
    spec = f"parallel:{tmp_path / 'data'},source=en,target=de"
    with pytest.warns(UserWarning, match="pairs .*: 1, line 5"):
        assert pairs(load_data(spec, "train")) == [*zip(range(1, 5), SOURCE, TARGET, strict=True)]
    with fails_naming("'fr'"):
        load_data(f"parallel:{tmp_path / 'data'},source=en,target=fr", "train")
    with fails_naming("'test'"):
        load_data(spec, "test")

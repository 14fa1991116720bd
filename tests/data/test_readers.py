import hashlib
import json
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name

import pytest
from datasets import Features, Value

from hf_ngsan.data import Reader, describe_readers, extra_scores_of, load_data, register_reader
from hf_ngsan.data.prepared import Rows, prepare
from hf_ngsan.data.readers import READERS
from tests.data.facts import fails_naming
from tests.tables import each_row

DATASETS = Path(__file__).parents[2] / "docs" / "datasets.md"


@pytest.fixture
def registry(monkeypatch):
    """A registry that forgets what a test adds."""
    copy = dict(READERS)
    monkeypatch.setattr("hf_ngsan.data.readers.READERS", copy)
    return copy


@each_row("reader", READERS.values())
def test_an_entry_says_what_its_loader_takes(reader):
    parameters = list(signature(resolve_name(reader.loader)).parameters)
    assert parameters[parameters.index("split") + 1 :] == list(reader.keys)
    assert parameters.index("split") == (1 if reader.source else 0)
    for scores in filter(None, [extra_scores_of(reader.name)]):
        assert scores.names and scores.completion_tokens >= 0


def test_the_help_text_and_the_documentation_have_every_reader():
    page = DATASETS.read_text(encoding="utf-8")
    for reader in READERS.values():
        assert reader.usage in describe_readers()
        assert all(key in describe_readers() for key in reader.keys)
        columns = ", ".join(f"`{column}`" for column in reader.columns)
        assert f"| `{reader.usage}` | {reader.summary} | {columns} |" in page


def test_a_reader_of_the_users_is_one_of_them(registry):
    def load(source, split, *, number=1, fast=False, name="none"):
        return [source, split, number, fast, name]

    keys = {"number": int, "fast": bool, "name": str}
    register_reader(Reader("mine", load, "my data", ["captions"], source="FILE", keys=keys, extra_scores="scores"))
    with fails_naming("'mine'"):
        register_reader(Reader("mine", load, "other data", []))
    assert registry["mine"].usage == "mine:FILE[,KEY=VALUE,…]"
    assert load_data("mine:a.txt", "val") == ["a.txt", "validation", 1, False, "none"]
    assert load_data("mine:c:d.txt,number=-2, fast=True,name=x+y,z", "dev") == ["c:d.txt", "dev", -2, True, "x+y,z"]
    assert "mine:FILE" in describe_readers()
    with fails_naming("mine:FILE"):
        load_data("yours:a.txt", "train")


def test_prepared_rows_are_kept_until_the_version_of_their_reader_rises(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path))
    made = []

    def prepared(version, number):
        def make():
            made.append(number)
            return Rows(Features({"image_id": Value("int64")}), [{"image_id": number}])

        assert prepare("numbers", version, "train", [number], make)["image_id"] == [number]

    for version, number in ((1, 5), (1, 6), (1, 5), (2, 5), (2, 5)):
        prepared(version, number)
    assert made == [5, 6, 5]
    assert {place.name.split("-")[1] for place in (tmp_path / "hf_ngsan").iterdir()} == {"2"}, "the others are removed"


@each_row(
    ("spec", "columns", "digest"),
    [
        ("scenes:size=3,seed=1", ["captions", "objects"], "274477f22cd5a048"),
        ("moving_scenes:size=3,seed=1", ["captions", "action", "object"], "77bb2b1b7a7dc50c"),
    ],
)
def test_other_rows_need_another_version_of_their_reader(spec, columns, digest):
    rows = [[row[name] for name in columns] for row in load_data(spec, "train")]
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] == digest, "raise the version that prepare() gets"


def test_a_source_whose_name_holds_commas_and_equals_signs_is_taken_whole(registry, tmp_path, monkeypatch):
    keys = {"key": str}
    register_reader(Reader("mine", lambda source, split, key=None: (source, key), "", [], source="DIR", keys=keys))
    folder = tmp_path / "a: x,key=b"
    assert load_data(f"mine:{folder}", "train") == (str(tmp_path / "a: x"), "b")
    folder.mkdir()
    assert load_data(f"mine:{folder}", "train") == (str(folder), None)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_data("mine:~/a: x,key=b", "train") == (str(folder), None)

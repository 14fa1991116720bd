"""COCO files as all commands read them; `tests/metrics/test_command.py` has results and references that are wrong."""

import json

import numpy as np
import pytest

from hf_ngsan.io.coco_files import (
    CocoFileError,
    Record,
    id_order,
    images_by_id,
    number_at_the_end,
    number_of,
    read_json,
    read_object,
    read_references,
    read_results,
    write_caption_file,
)
from tests.tables import each_row


def write(path, content, encoding="utf-8"):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding=encoding)
    return path


def test_captions_are_in_the_order_of_their_ids_or_of_the_file(tmp_path):
    texts = [("b", 5), ("a", 9), ("c", 2), ("d", 5)]
    annotations = [{"image_id": 1, "id": number, "caption": text} for text, number in texts]
    assert read_references(write(tmp_path / "c.json", {"annotations": annotations})) == {1: ["c", "b", "d", "a"]}
    for annotation in annotations:
        del annotation["id"]
    assert read_references(write(tmp_path / "c.json", {"annotations": annotations})) == {1: ["b", "a", "c", "d"]}


def test_an_id_written_both_ways_is_one_image(tmp_path):
    annotations = [{"image_id": image_id, "caption": text} for image_id, text in [("7", "a"), (8, "b"), (7, "c")]]
    assert read_references(write(tmp_path / "c.json", {"annotations": annotations})) == {"7": ["a", "c"], 8: ["b"]}


def test_numbers_come_before_other_ids_and_by_value():
    ids = ["10", 9, "b", -1, "a", 10**30, "9a", "007"]
    assert sorted(ids, key=id_order) == [-1, "007", 9, "10", 10**30, "9a", "a", "b"]


@each_row("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_any_encoding_of_json_is_read(tmp_path, encoding):
    rows = [{"image_id": 1, "caption": "Ein Mädchen läuft"}]
    assert read_results(write(tmp_path / "r.json", json.dumps(rows, ensure_ascii=False), encoding)) == {
        1: "Ein Mädchen läuft"
    }


@each_row("content", ['{"a": 1}\n{"a": 2}', "[1] 2", "[1", "", " ", "[" * 100_000, b'{"a": "\xff"}'])
def test_a_document_is_one_json_value(tmp_path, content):
    path = tmp_path / "d.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CocoFileError) as error:
        read_json(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(IsADirectoryError, match=path.parent.name):
        read_json(path.parent)


@each_row(
    ("kind", "value", "fact"),
    [
        ("integer", "3", "'3'"),
        ("integer", True, "True"),
        ("integer", 2**63, str(2**63)),
        ("string", 7, "7"),
        ("identifier", 1.5, "1.5"),
        ("encodable", "a \ud83d cat", r"\ud83d"),
        ("text", "\udfff", r"\udfff"),
        ("strings", "a", "'a'"),
        ("strings", ["a", 1], "['a', 1]"),
        ("strings", ["a", "\ud800"], r"\ud800"),
        ("records", {}, "{}"),
        ("records", [{}, 1], "field[1]"),
        ("choice", "c", "a, b"),
        ("choice", True, "True"),
    ],
)
def test_a_field_of_another_kind_is_named(kind, value, fact):
    known = [["a", "b", 1]] if kind == "choice" else []
    for fields, named in (({"field": value}, fact), ({}, "missing" if kind != "records" else "field")):
        with pytest.raises(CocoFileError) as error:
            getattr(Record("here", fields), kind)("field", *known)
        assert "here" in str(error.value) and "field" in str(error.value) and named in str(error.value)
        assert "\n" not in str(error.value)


def test_fields_are_read():
    fields = {"n": -(2**63) + 1, "s": " a\n b ", "l": ["a"], "r": [{"x": 1}], "width": 1, "height": 2**31 - 1}
    record = Record("here", fields)
    assert (record.integer("n"), record.identifier("n"), record.choice("n", [fields["n"]])) == (fields["n"],) * 3
    assert (record.string("s"), record.encodable("s"), record.text("s")) == (" a\n b ", " a\n b ", "a b")
    assert record.strings("l") == ["a"] and record.size() == (1, 2**31 - 1)
    assert record.records("r")[0] == Record("here, r[0]", {"x": 1})


@each_row("size", [(0, 100), (100, 2**31)])
def test_a_size_is_a_number_of_pixels(size):
    with pytest.raises(CocoFileError) as error:
        Record("here", dict(zip(("width", "height"), size, strict=True))).size()
    assert str(size) in str(error.value)


def test_numbers_in_the_names_of_images():
    names = ["391895", "COCO_val2014_000000391895.jpg", "val/COCO_val2014_000000391895.jpg", "b-7.png", "cat", "1" * 19]
    assert [number_of(name) for name in names] == [391895, 391895, None, None, None, None]
    assert [number_at_the_end(name) for name in names] == [391895, 391895, 391895, 7, None, None]


ROWS = {7: ["A dog.", "Ein Mädchen\nläuft"], 3: ["a bird"], "val/1.jpg": ["a cat"]}


def test_written_references_are_read_back(tmp_path):
    path = tmp_path / "new" / "references.json"
    ids = [np.int64(7), 3, "val/1.jpg"]
    assert write_caption_file(path, ids, (iter(texts) for texts in ROWS.values())) == 4
    assert read_references(path) == ROWS
    assert list(read_references(path)) == [3, 7, "val/1.jpg"]
    assert [path.name for path in path.parent.iterdir()] == ["references.json"]
    write_caption_file(path, [7], [["a"]])
    assert list(images_by_id(read_object(path), path)) == [7]


def test_pycocotools_loads_written_references(tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    write_caption_file(tmp_path / "references.json", list(ROWS)[:2], list(ROWS.values())[:2])
    write(tmp_path / "results.json", [{"image_id": 3, "caption": "a"}])
    references = coco.COCO(str(tmp_path / "references.json"))
    results = references.loadRes(str(tmp_path / "results.json"))
    assert results.getImgIds() == [3]
    assert [row["caption"] for row in references.loadAnns(references.getAnnIds([7]))] == ROWS[7]


@each_row(
    ("image_ids", "captions", "facts"),
    [
        ([], [], ["no images"]),
        ([1, 2], [["a"]], ["2 image ids", "1 images"]),
        ([1, 5, "1"], [["a"]] * 3, ["1", "rows 0 and 2"]),
        ([1, 2.0], [["a"]] * 2, ["row 1", "2.0"]),
        ([True], [["a"]], ["row 0", "True"]),
        ([4], [[]], ["image 4", "[]"]),
        ([4], ["a cat"], ["image 4", "a cat"]),
        ([4], [["a", None]], ["image 4", "None"]),
        ([4], [["half \udfff"]], ["image 4", "UTF-8"]),
    ],
)
def test_references_that_cannot_be_written_are_explained(tmp_path, image_ids, captions, facts):
    with pytest.raises(ValueError) as error:
        write_caption_file(tmp_path / "references.json", image_ids, captions)
    assert not [fact for fact in facts if fact not in str(error.value)], str(error.value)
    assert not list(tmp_path.iterdir())


LONG = "7" * 5000


@each_row("read", [read_results, read_references])
@each_row(
    ("image_id", "fact"),
    [(LONG, "777777"), (f"-{LONG}", "-777777"), ('"\\ud800"', r"\\ud800")],
)
def test_image_ids_that_are_too_long_or_no_text_are_told_by_file_and_field(tmp_path, read, image_id, fact):
    path = tmp_path / "file.json"
    rows = f'[{{"image_id": 1, "caption": "a"}}, {{"image_id": {image_id}, "caption": "a"}}]'
    path.write_text(rows if read is read_results else f'{{"annotations": {rows}}}')
    with pytest.raises(CocoFileError, match=fact) as caught:
        read(path)
    text = str(caught.value)
    assert text.startswith(str(path)) and "image_id" in text and "\n" not in text and len(text) < 300
    text.encode()


def test_ids_of_images_that_are_too_long_are_told_by_file_and_field(tmp_path):
    path = tmp_path / "file.json"
    path.write_text(f'{{"images": [{{"id": 1}}, {{"id": {LONG}}}]}}')
    with pytest.raises(CocoFileError, match=r"images\[1\]: id is 777"):
        images_by_id(read_object(path), path)
    path.write_text(f'[{{"image_id": {"7" * 100}, "caption": "a"}}, {{"image_id": "{LONG}", "caption": "b"}}]')
    assert read_results(path) == {int("7" * 100): "a", LONG: "b"}

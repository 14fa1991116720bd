"""COCO files as all commands read them; `tests/metrics/test_command.py` has results and references that are wrong."""

import json

import numpy as np
import pytest

from hf_ngsan.data.coco_files import (
    Record,
    id_order,
    images_by_id,
    number_at_the_end,
    number_of,
    read_json,
    read_references,
    read_results,
    write_caption_file,
)
from hf_ngsan.data.errors import DataError
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


def test_fields_are_read():
    fields = {"n": -(2**63) + 1, "s": " a\n b ", "l": ["a"], "r": [{"x": 1}], "width": 1, "height": 2**31 - 1}
    record = Record("here", fields)
    assert (record.integer("n"), record.identifier("n"), record.choice("n", [fields["n"]])) == (fields["n"],) * 3
    assert (record.string("s"), record.text("s")) == (" a\n b ", "a b")
    assert record.strings("l") == ["a"] and record.size() == (1, 2**31 - 1)
    assert record.records("r")[0] == Record("here, r[0]", {"x": 1})
    for size in [(0, 100), (100, 2**31)]:
        with pytest.raises(DataError):
            Record("here", dict(zip(("width", "height"), size, strict=True))).size()


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
    assert list(images_by_id(read_json(path), path)) == [7]


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
        ([1, 2], [["a"]], ["2 image ids", "1 images"]),
        ([1, 5, "1"], [["a"]] * 3, ["1", "rows 0 and 2"]),
        ([4], [[]], ["image 4", "[]"]),
    ],
)
def test_references_that_cannot_be_written_are_explained(tmp_path, image_ids, captions, facts):
    with pytest.raises(ValueError) as error:
        write_caption_file(tmp_path / "references.json", image_ids, captions)
    assert not [fact for fact in facts if fact not in str(error.value)], str(error.value)
    assert not list(tmp_path.iterdir())

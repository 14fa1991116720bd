"""COCO files as all commands read them; `tests/metrics/test_command.py` has results and references that are wrong."""

import json

import pytest

from hf_ngsan.coco_files import CocoFileError, id_order, read_json, read_references, read_results


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


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_any_encoding_of_json_is_read(tmp_path, encoding):
    rows = [{"image_id": 1, "caption": "Ein Mädchen läuft"}]
    assert read_results(write(tmp_path / "r.json", json.dumps(rows, ensure_ascii=False), encoding)) == {
        1: "Ein Mädchen läuft"
    }


@pytest.mark.parametrize("content", ['{"a": 1}\n{"a": 2}', "[1] 2", "[1"])
def test_a_document_is_one_json_value(tmp_path, content):
    with pytest.raises(CocoFileError, match="is not valid JSON"):
        read_json(write(tmp_path / "d.json", content))

"""COCO files as all commands read them; `tests/commands/test_score.py` has invalid results and references."""

import json

import numpy as np
import pytest

from hf_ngsan.data.coco_files import (
    id_order,
    number_at_the_end,
    number_of,
    read_json,
    read_references,
    records_by_id,
    write_caption_file,
)
from tests.data.facts import fails_naming


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
    assert list(records_by_id(read_json(path), "images", path)) == [7]


def test_captions_that_would_not_be_read_back_are_not_written(tmp_path):
    for ids, captions in (([7, "7"], [["a"], ["b"]]), ([7], ["a dog"]), ([7], [[]])):
        with pytest.raises(ValueError, match="7"):
            write_caption_file(tmp_path / "references.json", ids, captions)
    assert not list(tmp_path.iterdir())


def test_files_without_captions_or_with_more_than_json_are_named(tmp_path):
    with fails_naming("c.json"):
        read_references(write(tmp_path / "c.json", {"annotations": []}))
    with fails_naming("two.json", "line 2"):
        read_json(write(tmp_path / "two.json", "{}\n{}"))

"""COCO files as all commands read them; `tests/metrics/test_command.py` has results and references that are wrong."""

import json

import numpy as np
import pytest

from hf_ngsan.ground.coco_files import (
    CocoFileError,
    id_order,
    images_by_id,
    read_json,
    read_object,
    read_references,
    read_results,
    write_caption_file,
)


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("read", [read_results, read_references])
@pytest.mark.parametrize(
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

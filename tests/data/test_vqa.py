"""Questions of VQA v2 are joined with the features of their images when they are read."""

import json
from pathlib import Path

import numpy as np
import pytest

from hf_ngsan.data import load_data
from tests.data.facts import fails_naming
from tests.data.rows import dataset_of, make_row
from tests.data.test_annotation_tables import answer, question

pytestmark = pytest.mark.usefixtures("cache")
NAMES = ("v2_OpenEnded_mscoco_{}_questions.json", "v2_mscoco_{}_annotations.json")


def write_questions(folder: Path, numbers, name="val2014", answered=True) -> Path:
    folder.mkdir(exist_ok=True)
    for file, key, record in zip(NAMES, ("questions", "annotations"), (question, answer), strict=True):
        if key == "questions" or answered:
            more = {} if key == "questions" else {"answer_type": "number"}
            records = [record(number, **more) for number in numbers]
            (folder / file.format(name)).write_text(json.dumps({key: records}), encoding="utf-8")
    return folder


@pytest.fixture
def features(tmp_path):
    """Features of images 1, 2 and 3, with 1, 2 and 3 regions that contain the id."""
    rows = [make_row(image, image, visual_features=np.full((image, 4), image, np.float16)) for image in (3, 1, 2)]
    dataset_of(rows).save_to_disk(str(tmp_path / "features"))
    return tmp_path / "features"


def test_a_question_is_read_with_the_features_of_its_image(tmp_path, features):
    folder = write_questions(tmp_path / "vqa", [20, 10, 21])
    rows = load_data(f"vqa:{folder},features={features}", "validation")
    assert [row["image_id"] for row in rows] == [2, 1, 2]
    for row in rows:
        assert row["visual_features"].shape == (row["image_id"], 4)
        assert set(row["visual_features"].ravel()) == {row["image_id"]}
        assert row["visual_boxes"].dtype == np.float32 and len(row["answers"]) == 10
    assert rows[0]["question"] == "How many 20?" and rows[0]["answer_type"] == "number"
    assert rows["question"][:] == ["How many 20?", "How many 10?", "How many 21?"]
    assert "image_row" not in rows[0]
    assert rows.select_columns(["question_id"])[1] == {"question_id": 10}
    assert [len(row["visual_boxes"]) for row in rows.__getitems__([1, 1, 0])] == [1, 1, 2]
    assert [row["image_id"] for row in rows.select([2, 1])] == [2, 1]


def test_splits_are_the_names_of_the_official_files(tmp_path, features):
    folder = write_questions(tmp_path / "vqa", [10])
    write_questions(folder, [20], name="test-dev2015", answered=False)
    [row] = load_data(f"vqa:{folder},features={features}", "test-dev2015")
    assert row["image_id"] == 2 and "answers" not in row
    assert len(load_data(f"vqa:{folder},features={features}", "val2014")) == 1
    with fails_naming("train", "val2014_questions.json"):
        load_data(f"vqa:{folder},features={features}", "train")
    write_questions(folder, [20], name="other_val2014")
    with fails_naming("'validation'", "v2_OpenEnded_mscoco_other_val2014_questions.json"):
        load_data(f"vqa:{folder},features={features}", "validation")
    with fails_naming("features=DIR"):
        load_data(f"vqa:{folder}", "validation")
    rows = [make_row(2, 2, split=name) for name in ("train", "validation")]
    dataset_of(rows, split=True).save_to_disk(str(tmp_path / "twice"))
    with fails_naming("several images", "twice"):
        load_data(f"vqa:{folder},features={tmp_path / 'twice'}", "test-dev2015")
    with fails_naming("nowhere"):
        load_data(f"vqa:{tmp_path / 'nowhere'},features={features}", "validation")


def test_questions_without_image_are_counted_and_refused_or_left_out(tmp_path, features):
    folder = write_questions(tmp_path / "vqa", [10, 70, 71, 80])
    spec = f"vqa:{folder},features={features}"
    with fails_naming("3 of 4", "7, 8", "skip_errors=true"):
        load_data(spec, "validation")
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"3 of 4 questions .* \(7, 8\)"):
            assert len(load_data(f"{spec},skip_errors=true", "validation")) == 1
    with fails_naming("1 of 1"):
        load_data(f"vqa:{write_questions(tmp_path / 'other', [90])},features={features},skip_errors=true", "validation")


def test_broken_records_are_counted_and_refused_or_left_out(tmp_path, features):
    folder = write_questions(tmp_path / "vqa", [10, 20])
    file = folder / NAMES[0].format("val2014")
    questions = json.loads(file.read_text())
    questions["questions"][1]["question"] = " "
    file.write_text(json.dumps(questions))
    spec = f"vqa:{folder},features={features}"
    with fails_naming("2 records", "questions[1]", "annotations[1]", "skip_errors=true"):
        load_data(spec, "validation")
    with pytest.warns(UserWarning, match=r"2 records .*questions\[1\], annotations\[1\]"):
        assert len(load_data(f"{spec},skip_errors=true", "validation")) == 1

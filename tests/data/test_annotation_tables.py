"""Annotation files become tables, and every broken record of VQA v2 is named or listed."""

import json

import pytest
from datasets import load_from_disk

from hf_ngsan.data.conversion import convert_annotations
from tests.data.facts import fails_naming
from tests.data.formats.files import SIZES
from tests.data.formats.test_annotations import write_coco, write_json, write_karpathy
from tests.tables import each_row


def question(number, **changes):
    return {"question_id": number, "image_id": number // 10, "question": f"How many {number}?", **changes}


def answer(number, **changes):
    answers = [{"answer": f"{place}", "answer_id": place} for place in range(10)]
    record = {"question_id": number, "image_id": number // 10, "answers": answers, "multiple_choice_answer": "0"}
    return {key: value for key, value in {**record, **changes}.items() if value is not None}


def write_vqa(folder, questions, answers):
    return [
        write_json(folder / "questions.json", {"questions": questions}),
        write_json(folder / "annotations.json", {"annotations": answers}),
    ]


def test_captions_by_image(tmp_path):
    inputs = [write_karpathy(tmp_path / "split.json"), write_coco(tmp_path / "captions.json")]
    assert convert_annotations(inputs, tmp_path / "out").num_rows == len(SIZES)
    row = load_from_disk(str(tmp_path / "out"))[1]
    assert (row["image_id"], row["split"], row["width"], row["height"]) == (12, "train", *SIZES[12])
    assert row["captions"] == ["A thing of 12.", "Another", "the 12"]
    with pytest.raises(FileExistsError):
        convert_annotations(inputs, tmp_path / "out")


@each_row("order", [1, -1])
def test_questions_with_answers(order, tmp_path):
    inputs = write_vqa(tmp_path, [question(10), question(11)], [answer(11), answer(10)])
    convert_annotations(inputs[::order], tmp_path / "out")
    rows = load_from_disk(str(tmp_path / "out")).to_list()
    assert [row["question_id"] for row in rows] == [10, 11] and rows[1]["question"] == "How many 11?"
    assert rows[0]["answers"] == [str(place) for place in range(10)] and rows[0]["image_id"] == 1


FAULTS = {
    "twice": (question(20), answer(20), ["questions[1]", "20"]),
    "no question": (question(10), answer(99), ["annotations[1]", "99"]),
    "nine answers": (question(10), answer(10, answers=[{"answer": "a"}] * 9), ["annotations[1]", "9 answers"]),
    "another image": (question(10), answer(10, image_id=7), ["annotations[1]", "image 1"]),
}


@each_row("fault", FAULTS)
def test_a_broken_record_is_named_or_listed(fault, tmp_path):
    own_question, own_answer, facts = FAULTS[fault]
    inputs = write_vqa(tmp_path, [question(20), own_question], [answer(20), own_answer])
    with fails_naming(*facts):
        convert_annotations(inputs, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    result = convert_annotations(inputs, tmp_path / "out", skip_errors=True)
    listed = json.loads((tmp_path / "out" / "skipped.json").read_text())
    assert result.num_rows == 1 and listed == result.skipped
    assert [fact for fact in facts if fact not in " ".join(entry["reason"] for entry in listed)] == []
    with fails_naming("questions.json"):
        convert_annotations(write_vqa(tmp_path, [question(10)], [answer(11)]), tmp_path / "none", skip_errors=True)

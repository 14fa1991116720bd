"""The pipeline that answers questions about images."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_ngsan import QuestionAnsweringPipeline
from hf_ngsan.models.pipeline_visual_question_answering import VisualQuestionAnsweringPipeline as TravellingPipeline
from tests.models.mcan.tiny import ANSWERS, VISION, random_inputs, tiny_model, tiny_processor
from tests.models.tiny_photos import PHOTOS
from tests.tables import each_row

QUESTIONS = ["Is there a ball?", "What color is the box?", "How many rings are there?"]


@pytest.fixture(scope="module")
def feature_pipe():
    return QuestionAnsweringPipeline(model=tiny_model(geometric_bias=["query"]), processor=tiny_processor())


@pytest.fixture(scope="module")
def image_pipe():
    model = tiny_model(vision_config=VISION, visual_feature_size=None)
    return QuestionAnsweringPipeline(model=model, processor=tiny_processor(pixels=True))


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    inputs, sizes = random_inputs([1, 1, 1], [3, 5, 2]), (3, 5, 2)
    names = ("visual_features", "visual_boxes")
    return [
        {**{name: inputs[name][row, :size].numpy() for name in names}, "question": QUESTIONS[row]}
        for row, size in enumerate(sizes)
    ]


def test_answers_are_the_best_of_the_model(feature_pipe, rows):
    row = rows[0]
    inputs = feature_pipe.processor(
        text=row["question"], visual_features=row["visual_features"], visual_boxes=row["visual_boxes"]
    )
    with torch.no_grad():
        scores = feature_pipe.model(**inputs).logits[0].sigmoid()
    order = scores.argsort(descending=True).tolist()
    answers = feature_pipe(row)
    assert [answer["answer"] for answer in answers] == [ANSWERS[index] for index in order]
    assert [answer["score"] for answer in answers] == pytest.approx(scores[order].tolist())
    assert feature_pipe(row, top_k=2) == answers[:2]


def test_inputs_of_all_kinds_give_the_same(feature_pipe, rows):
    expected = [feature_pipe(row) for row in rows]
    table = Dataset.from_list([{name: np.asarray(value).tolist() for name, value in row.items()} for row in rows])
    bare = [{name: value for name, value in row.items() if name != "question"} for row in rows[:1]]
    for actual in (feature_pipe(rows, batch_size=2), feature_pipe(iter(rows)), feature_pipe(table, batch_size=3)):
        for item, other in zip(actual, expected, strict=True):
            assert [answer["answer"] for answer in item] == [answer["answer"] for answer in other]
            np.testing.assert_allclose([a["score"] for a in item], [a["score"] for a in other], atol=1e-5)
    assert feature_pipe(bare[0], question=QUESTIONS[0]) == expected[0]


def test_the_travelling_pipeline_gives_the_same_answers(feature_pipe, image_pipe, rows):
    for pipe, inputs, question in ((feature_pipe, rows, {}), (image_pipe, PHOTOS[:2], {"question": "a ball"})):
        travelling = TravellingPipeline(model=pipe.model, processor=pipe.processor)
        both = (travelling(inputs, top_k=2, **question), pipe(inputs, top_k=2, **question))
        for actual, expected in zip(*both, strict=True):
            assert [answer["answer"] for answer in actual] == [answer["answer"] for answer in expected]
            assert [answer["score"] for answer in actual] == pytest.approx([answer["score"] for answer in expected])


def test_attention_is_that_of_regions_or_of_pixels(feature_pipe, image_pipe, rows):
    best, *others = feature_pipe(rows[1], return_attention=True)
    assert best["words"] == ["what", "color", "is", "the", "box"]
    assert best["attention"].shape == (5, 5) and best["answer_attention"].shape == (5,)
    assert "attention" not in others[0]
    best, *_ = image_pipe(PHOTOS[0], question="a ball", return_attention=True)
    assert best["attention"].shape == (2, *np.asarray(PHOTOS[0]).shape[:2])
    assert best["answer_attention"].shape == best["attention"].shape[1:]
    small, *_ = image_pipe(image=PHOTOS[0], question="a ball", return_attention=True, attention_side=10)
    assert max(small["image"].size) == 10 and small["attention"].shape[1:] == small["image"].size[::-1]


@each_row(
    ("change", "message"),
    [
        ({"question": None}, "question about the image"),
        ({"question": "?!"}, r"words.*'\?!'"),
        ({"question": 7}, "int"),
        ({"visual_boxes": None}, "visual_boxes are missing .*model"),
        ({"visual_features": np.ones((3, 5))}, "visual_feature_size=12"),
    ],
)
def test_inputs_that_cannot_be_answered(change, message, feature_pipe, rows):
    with pytest.raises(ValueError, match=message):
        feature_pipe({**rows[0], **change})
    [skipped], [first, *_] = feature_pipe([{**rows[0], **change}, rows[1]], on_error="skip")
    assert skipped["answer"] is None and skipped["error"]
    assert first["answer"] in ANSWERS


def test_arguments_that_do_not_exist_are_refused(feature_pipe, rows):
    with pytest.raises(TypeError, match="num_beams"):
        feature_pipe(rows[0], num_beams=2)

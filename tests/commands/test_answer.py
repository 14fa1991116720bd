"""`hf-ngsan answer`: questions about files and rows of datasets, one or many, with figures."""

import json

import pytest
from PIL import Image

from hf_ngsan.loading.models import save_model
from tests.data.test_nlvr import example
from tests.data.test_nlvr import write as write_statements
from tests.models.mcan.tiny import ANSWERS, VISION, tiny_model, tiny_processor
from tests.models.tiny_photos import PHOTOS
from tests.tasks.tiny_questions import save_questions

from .running import fails, prints


@pytest.fixture(scope="module")
def image_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image_model")
    save_model(tiny_model(vision_config=VISION, visual_feature_size=None), tiny_processor(pixels=True), folder)
    return folder


@pytest.fixture(scope="module")
def feature_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("feature_model")
    save_model(tiny_model(geometric_bias=["query"], visual_feature_size=6), tiny_processor(), folder)
    return folder


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return save_questions(tmp_path_factory.mktemp("data") / "questions")


@pytest.fixture
def photo(tmp_path):
    PHOTOS[0].save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def fields(output: str) -> list[list[str]]:
    return [line.split("\t") for line in output.splitlines()]


def test_a_question_about_an_image(image_model, photo, tmp_path, capsys):
    actual = fields(prints(capsys, "answer", "Is there a ball?", "--image", photo, "--model", image_model, "--top-k", 3,
                          "--save-attention", tmp_path / "figures"))  # fmt: skip
    assert [name for name, _, _ in actual] == [str(photo)] * 3
    scores = [float(score) for _, _, score in actual]
    assert scores == sorted(scores, reverse=True) and {answer for _, answer, _ in actual} <= set(ANSWERS)
    assert (tmp_path / "figures" / "photo.png").stat().st_size > 1000
    asked = ["answer", "Is there a ball?", "--image", photo, "--model", image_model, "--top-k", 3]
    record = json.loads(prints(capsys, *asked, "--json"))
    assert record["question"] == str(photo) and record["error"] is None
    assert [(row["answer"], f"{row['score']:.4f}") for row in record["answers"]] == [tuple(row[1:]) for row in actual]


def test_a_file_of_questions(image_model, photo, capsys):
    lines = [{"image": image, "question": "a ball"} for image in ("photo.png", "gone.png", "photo.png")]
    file = photo.parent / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    assert "gone.png" in fails(capsys, "answer", "--questions", file, "--model", image_model)
    actual = fields(prints(capsys, "answer", "--questions", file, "--model", image_model, "--skip-errors"))
    assert [name for name, _, _ in actual] == [str(photo)] * 2 and actual[0] == actual[1]
    file.write_text('{"image": "photo.png"}')
    assert "line 1" in fails(capsys, "answer", "--questions", file, "--model", image_model)


def test_questions_of_a_dataset(feature_model, spec, tmp_path, capsys):
    asked = ["answer", "--model", feature_model, "--data", spec]
    actual = fields(prints(capsys, *asked, "--limit", 4, "--output", tmp_path / "results.json"))
    assert [name for name, _, _ in actual] == ["300", "310", "320", "330"]
    written = json.loads((tmp_path / "results.json").read_text())
    assert written == [{"question_id": int(name), "answer": answer} for name, answer, _ in actual]


def test_options_that_do_not_belong_together(image_model, feature_model, spec, photo, capsys):
    image, data = ["--image", photo], ["--data", spec]
    for options, printed in (
        *[(["a ball"], "--questions"), ([*image], "question"), (["a ball", *image, *data], "one of --image")],
        *[(["a ball", *data], "--image"), (["a ball", *image, "--output", "x.json"], "--data")],
        *[([*data, "--output", photo.parent], "folder"), (["?!", *image], "no words")],
    ):
        assert printed in fails(capsys, "answer", "--model", image_model, *options)
    assert "vision encoder" in fails(capsys, "answer", "a ball", *image, "--model", feature_model)


@pytest.fixture
def nlvr(tmp_path) -> str:
    """Three statements about pictures; the first two are about one."""
    write_statements(tmp_path, [example(identifier) for identifier in ("12-3", "12-3", "40-0")], "test")
    (tmp_path / "test" / "images" / "0").mkdir(parents=True)
    for identifier in ("12-3", "40-0"):
        Image.new("RGBA", (400, 100), "red").save(tmp_path / "test" / "images" / "0" / f"test-{identifier}-0.png")
    return f"nlvr:{tmp_path}"


def test_every_question_of_a_dataset_with_images_gets_a_figure(tmp_path, nlvr, capsys):
    save_model(tiny_model(geometric_bias=["query"], visual_feature_size=10), tiny_processor(), tmp_path / "model")
    asked = ["answer", "--model", tmp_path / "model", "--data", f"{nlvr},images=true"]
    plain = prints(capsys, *asked)
    assert prints(capsys, *asked, "--save-attention", tmp_path / "all") == plain
    assert {file.name for file in (tmp_path / "all").iterdir()} == {"12003.png", "12003-2.png", "40000.png"}
    with Image.open(tmp_path / "all" / "40000.png") as figure:
        assert min(figure.size) > 100
    message = fails(capsys, *asked[:-1], nlvr, "--save-attention", tmp_path / "none")
    assert nlvr in message and "images=true" in message and not (tmp_path / "none").exists()

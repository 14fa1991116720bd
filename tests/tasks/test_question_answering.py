"""Training and evaluating a model that answers questions: words, answers, soft targets, scores, errors."""

import json
import logging

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from hf_ngsan.data import DataError
from hf_ngsan.io.processes import make_accelerator
from hf_ngsan.loading.models import load_model
from hf_ngsan.metrics.vqa import vqa_accuracy
from hf_ngsan.tasks import predict_answers, train
from hf_ngsan.tasks.question_answering import collate_questions, known_answers, load_questions
from hf_ngsan.training import ConfigError
from tests.commands.running import fails, prints
from tests.data.conftest import cache  # noqa: F401
from tests.data.test_vqa import features, write_questions  # noqa: F401
from tests.tables import each_row
from tests.tasks.tiny_questions import row, save_questions, tiny_sections, tiny_task, tiny_training_config


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return save_questions(tmp_path_factory.mktemp("questions") / "data")


@pytest.fixture(scope="module")
def run(tmp_path_factory, spec):
    folder = tmp_path_factory.mktemp("answers") / "run"
    train(tiny_training_config(folder, spec, model={"geometric_bias": ["query"]}))
    return folder


def test_training_fits_words_and_answers_of_the_training_split(run, spec):
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert history[1]["loss"] < history[0]["loss"]
    assert {"answer_score", "accuracy", "accuracy_number", "accuracy_other"} <= history[-1].keys()
    model, processor = load_model(run, "visual_question_answering")
    answers = [model.config.id2label[number] for number in range(model.config.num_labels)]
    assert set(answers) == {"1", "2", "3", "red", "blue"} and model.config.visual_feature_size == 6
    counts = [sum(row(number)["answers"][0] == answer for number in range(24)) for answer in answers]
    assert counts == sorted(counts, reverse=True)
    assert processor.tokenizer.tokenize("What color?") == ["what", "color"]


def test_scores_are_those_of_single_questions(run, spec, capsys, tmp_path):
    model, processor = load_model(run, "visual_question_answering")
    rows = load_questions(spec, "test")
    actual = predict_answers(model, processor, rows, batch_size=4)
    single = []
    for item in rows:
        inputs = processor(
            text=item["question"], visual_features=item["visual_features"], visual_boxes=item["visual_boxes"]
        )
        with torch.no_grad():
            single.append(model.config.id2label[int(model(**inputs).logits.argmax())])
    assert [answer for answer, _ in actual] == single
    scores = [vqa_accuracy(answer, item["answers"]) for answer, item in zip(single, rows, strict=True)]
    output = tmp_path / "answers.json"
    printed = json.loads(prints(capsys, "evaluate", "--model", run, "--data", spec, "--output", output))
    assert printed["accuracy"] == pytest.approx(100 * np.mean(scores)) and printed["questions"] == 6
    assert printed["accuracy_number"] == pytest.approx(100 * np.mean(scores[::2]))
    written = json.loads(output.read_text())
    assert written == [{"question_id": 10 * n, "answer": a} for n, a in zip(range(30, 36), single, strict=True)]
    task = tiny_task(run, spec)
    assert task.known_metrics(rows) == ["accuracy", "accuracy_number", "accuracy_other"]
    assert task.evaluate(model, processor, rows, make_accelerator()).scores["accuracy"] == pytest.approx(
        printed["accuracy"]
    )


def test_targets_are_soft_and_unknown_answers_have_none(spec):
    processor = tiny_task("x", spec).build(load_questions(spec, "train"))[1]
    rows = [{**row(1), "answers": ["red", "7", "Seven.", "red-thing", *["three"] * 6]}, {**row(3), "answers": ["x"]}]
    batch = collate_questions(processor, rows, {"red": 0, "3": 1, "7": 2, "red thing": 3, "4": 4})
    torch.testing.assert_close(batch["labels"], torch.tensor([[0.3, 1.0, 0.6, 0.3, 0.0], [0.0] * 5]))
    assert collate_questions(processor, [{**row(1), "question": "?!"}])["input_ids"].tolist() == [[1]]
    assert "labels" not in collate_questions(processor, [row(1)])


def test_answers_come_from_the_training_split(spec, caplog):
    rows = load_questions(spec, "train")
    assert known_answers(rows, 1)[0] == known_answers(rows, 4)[0]
    assert set(known_answers(rows, 1)) == {"1", "2", "3", "red", "blue"}
    best = rows.add_column("multiple_choice_answer", ["The one."] * 23 + ["two"])
    assert known_answers(best, 1) == ["1", "2"] and known_answers(best, 2) == ["1"]
    with pytest.raises(DataError, match=r"100 .*24 .*data\.min_answer_count"):
        known_answers(rows, 100)
    task = tiny_task("x", spec, data={"max_question_length": 4, "min_answer_count": 5})
    with caplog.at_level(logging.INFO, logger="hf_ngsan"):
        model, _ = task.build(task.load_rows("train"))
    messages = " ".join(caplog.messages)
    left_out = {"1", "2", "3", "red", "blue"} - set(model.config.label2id)
    without = sum(row(number)["answers"][0] in left_out for number in range(24))
    assert without and f"{without} of 24 questions have none of these answers" in messages


def test_word_vectors_come_from_a_file(spec, tmp_path):
    vectors = tmp_path / "glove.txt"
    vectors.write_text(f"what {' '.join(['0.5'] * 8)}\nzebra {' '.join(['1'] * 8)}\n")
    fixed = {"data": {"word_vectors": str(vectors)}, "training": {"train_word_vectors": False, "epochs": 1}}
    result = train(tiny_training_config(tmp_path / "run", spec, **fixed))
    weights = load_file(result.output_dir / "last" / "model.safetensors")["model.encoder.embed_tokens.weight"]
    _, processor = load_model(result.output_dir, "visual_question_answering")
    assert (weights[processor.tokenizer.get_vocab()["what"]] == 0.5).all()
    vectors.write_text("what 1 2\n")
    with pytest.raises(ConfigError, match=r"model\.word_embedding_size=2"):
        tiny_task(tmp_path, spec, **fixed).build(load_questions(spec, "train"))


@each_row(
    ("section", "key", "value", "message"),
    [
        ("model", "visual_feature_size", 7, "dimension 6"),
        ("evaluation", "metric", "accuracy_yes", "accuracy_yes"),
        ("data", "spec", "scenes:size=4", "question"),
    ],
)
def test_wrong_training_configs_are_refused(spec, tmp_path, capsys, section, key, value, message):
    sections = tiny_sections(tmp_path / "run", spec)
    sections.setdefault(section, {})[key] = value
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(sections))
    assert message in fails(capsys, "train", "--config", tmp_path / "config.yaml")
    assert not (tmp_path / "run").exists()

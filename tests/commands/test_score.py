"""`hf-ngsan score` on valid and invalid COCO files."""

import argparse
import json

import pytest

from hf_ngsan.commands import score as command
from hf_ngsan.metrics import CaptionMetrics
from tests.tables import each_row

REFERENCES = {
    "images": [{"id": 3}, {"id": 7}, {"id": 11}],
    "annotations": [
        {"id": 12, "image_id": 7, "caption": "A dog."},
        {"id": 11, "image_id": 7, "caption": "Two dogs\nrun"},
        {"id": 10, "image_id": 3, "caption": "A bird sits on a branch"},
        {"id": 13, "image_id": 11, "caption": "A man"},
    ],
}
RESULTS = [{"image_id": 7, "caption": "a dog runs"}, {"image_id": 3, "caption": "A bird on a branch."}]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "references.json").write_text(json.dumps(REFERENCES))
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    return tmp_path


def score(folder, *options, results="results.json", references="references.json"):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    files = ["--predictions", str(folder / results), "--references", str(folder / references)]
    return command.run(parser.parse_args([*files, *options]))


def test_scores_are_printed_and_written(files, capsys):
    score(files, "--per-image", str(files / "scores.json"))
    expected = CaptionMetrics().compute(
        predictions=["A bird on a branch.", "a dog runs"],
        references=[["A bird sits on a branch"], ["Two dogs run", "A dog."]],
        per_image=True,
    )
    images = expected.pop("per_image")
    output = capsys.readouterr().out
    for name, value in expected.items():
        assert f"{name:<8} {value:.4f}\n" in output
    assert "2 images, tokenizer ptb; 1 image(s) of" in output
    rows = json.loads((files / "scores.json").read_text())
    assert [row.pop("image_id") for row in rows] == [3, 7]
    assert rows == [{name: values[i] for name, values in images.items()} for i in range(2)]


def test_two_systems_are_compared(tmp_path, capsys):
    words = ["cat", "dog", "horse", "bird"]
    rows = [(image, f"a {words[image % 4]} on a mat {image}") for image in range(24)]
    annotations = [{"id": image, "image_id": image, "caption": text} for image, text in rows]
    captions = {
        "references.json": {"images": [{"id": image} for image, _ in rows], "annotations": annotations},
        "good.json": [{"image_id": image, "caption": text} for image, text in reversed(rows)],
        "bad.json": [{"image_id": image, "caption": f"the {text.split()[1]}"} for image, text in rows],
    }
    for name, content in captions.items():
        (tmp_path / name).write_text(json.dumps(content))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    compared = ["--compare", str(tmp_path / "good.json"), str(tmp_path / "bad.json"), "--references"]
    compared += [str(tmp_path / "references.json"), "--metrics"]
    command.run(parser.parse_args([*compared, "rouge_l", "cider_d"]))
    printed = capsys.readouterr().out.splitlines()
    values = {line.split()[0]: [float(part.strip("[],")) for part in line.split()[1:]] for line in printed[1:3]}
    assert values.keys() == {"rouge_l", "cider_d"}
    for name, (good, bad, difference, low, high, p_value, p_holm) in values.items():
        assert difference == pytest.approx(good - bad, abs=2e-4), name
        assert low <= difference <= high and low > 0, name
        assert p_value == pytest.approx(2 / 10_001, abs=1e-4) and p_holm == pytest.approx(2 * p_value, abs=1e-4), name

    with pytest.raises(ValueError, match="--compare"):
        command.run(parser.parse_args([*compared, "rouge_l", "--per-image", "scores.json"]))
    (tmp_path / "bad.json").write_text(json.dumps(captions["bad.json"][1:]))
    with pytest.raises(ValueError, match="different images, such as 0"):
        command.run(parser.parse_args([*compared, "rouge_l"]))


def test_the_choice_of_metrics(files, capsys):
    score(files, "--metrics", "rouge_l", "bleu")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:-1]] == [
        "rouge_l", "bleu_1", "bleu_2", "bleu_3", "bleu_4"
    ]  # fmt: skip
    (files / "one.json").write_text(json.dumps(RESULTS[:1]))
    with pytest.raises(ValueError, match="two"):
        score(files, results="one.json")
    with pytest.raises(SystemExit):
        score(files, "--metrics", "CIDEr")


def result(**changes):
    return [RESULTS[0], {**RESULTS[1], **changes}]


@each_row(
    ("content", "facts"),
    [
        ("[", ["JSON"]),
        ([], ["no results"]),
        (result(caption=None), ["row 1", "caption", "None"]),
        (result(image_id=7), ["row 0", "row 1", "image 7"]),
        (result(image_id="7"), ["row 0", "row 1", "image 7"]),
        (result(image_id=99), ["1 image(s)", "references.json", "99"]),
        ('{"image_id": 7, "caption": "a"}\n\n{"image_id": 3', ["line 3", "JSON"]),
        ('{"image_id": 7, "caption": "a"}\n{"image_id": 7, "caption": "a"}', ["line 1", "line 2", "image 7"]),
    ],
)
def test_bad_results_are_explained(files, content, facts):
    (files / "results.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ValueError, match=r"results\.json") as error:
        score(files, "--per-image", str(files / "scores.json"))
    assert_one_line_with(facts, error)
    assert not (files / "scores.json").exists()


def assert_one_line_with(facts, error):
    assert not [fact for fact in facts if fact not in str(error.value)], str(error.value)
    assert "\n" not in str(error.value)


def with_string_ids(rows, form="{}"):
    return [{**row, "image_id": form.format(row["image_id"])} for row in rows]


def printed(capsys, *arguments, **files):
    score(*arguments, **files)
    return capsys.readouterr().out


@each_row(("results_form", "references_form"), [("{}", None), (None, "{}"), ("{}", "{}"), ("val/{}.jpg", "val/{}.jpg")])
def test_image_ids_may_be_strings_in_either_file(files, capsys, results_form, references_form):
    expected = printed(capsys, files)
    if results_form:
        (files / "results.json").write_text(json.dumps(with_string_ids(RESULTS, results_form)))
    if references_form:
        annotations = with_string_ids(REFERENCES["annotations"], references_form)
        (files / "references.json").write_text(json.dumps({"annotations": annotations}))
    assert printed(capsys, files, "--per-image", str(files / "scores.json")) == expected
    written = [row["image_id"] for row in json.loads((files / "scores.json").read_text())]
    assert written == ([3, 7] if results_form is None else [results_form.format(image_id) for image_id in (3, 7)])


@each_row("end", ["\n", "\n\n", "\r\n", ""])
def test_both_files_may_be_json_lines(files, capsys, end):
    expected = printed(capsys, files)
    rows = [RESULTS[0], {**RESULTS[1], "caption": "A bird on\u2028a branch."}]
    for name, content in (("results.json", rows), ("references.json", REFERENCES["annotations"])):
        lines = [json.dumps(row, ensure_ascii=False) for row in content]
        (files / name).write_bytes((end or "\n").join(lines).encode() + end.encode())
    assert printed(capsys, files) == expected
    (files / "results.json").write_text(json.dumps(RESULTS[0]))
    assert "1 images, tokenizer ptb;" in printed(capsys, files, "--metrics", "bleu")

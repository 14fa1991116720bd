"""docs/adding_a_model.md and docs/adding_data.md: their files are written or copied and their commands are run."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "examples" / "models"
IGNORED = shutil.ignore_patterns("runs", "__pycache__")
PAGES = "".join((ROOT / "docs" / name).read_text() for name in ("adding_a_model.md", "adding_data.md"))
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGES, re.M | re.S))
FILE = re.compile(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", re.M | re.S)
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    return shutil.copytree(MODELS, tmp_path_factory.mktemp("outside"), ignore=IGNORED, dirs_exist_ok=True)


def follow(section: str, folder: Path) -> list[str]:
    """Writes the files of a section and runs its commands and scripts in order; returns the output of each."""
    text = SECTIONS[section]
    for name, content in FILE.findall(text):
        file = folder / name
        assert not file.exists() or file.read_text() == content, f"{name} differs from the one in examples/models"
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    outputs = []
    for language, code in BLOCK.findall(FILE.sub("", text)):
        lines = code.splitlines() if language == "bash" else [None]
        for line in lines:
            arguments = ["-c", code] if line is None else ["-m", "hf_ngsan.cli", *shlex.split(line)[1:]]
            assert line is None or shlex.split(line)[0] == "hf-ngsan"
            outputs.append(run(arguments, folder))
    return outputs


def run(arguments: list[str], folder: Path) -> str:
    result = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    return result.stdout


def history(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def this_package(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.slow
def test_a_classifier_trains_resumes_and_evaluates(workplace):
    trained, resumed, evaluated, compared, pushed = follow("A classifier", workplace)
    assert "accuracy" in trained and "runs/counting/best" in resumed
    further = ["model.init_from=runs/counting", "training.output_dir=runs/further", "training.epochs=1"]
    run(["-m", "hf_ngsan.cli", "train", "--import", "counting", "--config", "counting.yaml", *further], workplace)
    assert history(workplace / "runs" / "further")[0]["loss"] < history(workplace / "runs" / "counting")[0]["loss"] / 2
    epochs = history(workplace / "runs" / "counting")
    assert [entry["epoch"] for entry in epochs] == list(range(1, 9))
    scores = json.loads(evaluated)
    assert scores["accuracy"] > 0.9
    assert (scores["mean_error"] == 0) == (scores["accuracy"] == 1)
    counts = json.loads((workplace / "counts.json").read_text())
    assert len(counts) == 20 and set(counts) <= set(range(11))
    assert "computes the recorded outputs" in compared and "counting-checkpoint" in pushed
    card = ModelCard.load(workplace / "counting-checkpoint" / "README.md")
    recorded = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert recorded["accuracy"] == pytest.approx(scores["accuracy"], abs=1e-4)
    assert "This model counts the stars of a scene." in card.text


@pytest.mark.slow
def test_a_captioner_trains_evaluates_and_captions(workplace):
    _, evaluated, captioned = follow("A captioner", workplace)
    assert {"cider_d", "symmetric"} <= json.loads(evaluated).keys()
    assert len(captioned.splitlines()) == 3
    config = json.loads((workplace / "runs" / "glance" / "best" / "config.json").read_text())
    assert (config["model_type"], config["hidden_size"]) == ("glance", 32)


@pytest.mark.slow
def test_the_first_commands_of_the_page_train(workplace):
    [(_, code)] = BLOCK.findall(PAGES[: PAGES.index("## A captioner")])
    _, *commands = (shlex.split(line, comments=True) for line in code.splitlines())
    for number, command in enumerate(commands):
        run(["-m", "hf_ngsan.cli", *command[1:], "training.epochs=1", f"training.output_dir=first/{number}"], workplace)
        assert len(history(workplace / "first" / str(number))) == 1


@pytest.mark.slow
def test_a_dual_encoder_trains(workplace):
    follow("A dual encoder", workplace)
    first, *_, last = history(workplace / "runs" / "matching")
    assert last["loss"] < first["loss"]
    assert last["text_to_image_median_rank"] < 12, "of 50 images; 25 by chance"
    assert (workplace / "runs" / "matching" / "best" / "tokenizer.json").is_file()


@pytest.mark.slow
def test_a_reader_a_format_and_a_metric_are_known_to_the_commands(workplace):
    follow("Data for the examples", workplace)
    follow("A reader", workplace)
    annotations = json.loads((workplace / "references.json").read_text())["annotations"]
    assert len(annotations) == 20 and all(entry["caption"].islower() for entry in annotations)
    converted, inspected = follow("A format of feature files", workplace)
    assert "4 images" in converted and "no problem found" in inspected
    (scored,) = follow("A metric", workplace)
    assert 0.5 < float(re.search(r"^length_ratio +([\d.]+)$", scored, re.M)[1]) < 2


def test_every_section_with_commands_is_run():
    models, data = (
        ("A classifier", "A captioner", "A dual encoder"),
        ("Data for the examples", "A reader", "A format of feature files", "A metric"),
    )
    assert {title for title, text in SECTIONS.items() if BLOCK.findall(text)} == {*models, *data}

"""Code that a checkpoint brings along is never run or asked about by a command; the message says how to run it."""

import builtins
import json

import pytest
from PIL import Image

from hf_ngsan import save_for_hub
from hf_ngsan.cli import main
from hf_ngsan.loading import load_captioner

from .models.tiny import tiny_captioner, tiny_processor

CODE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nraise SystemExit('stolen')\n"


@pytest.fixture(autouse=True)
def no_questions(monkeypatch):
    def asked(prompt=""):
        pytest.fail(f"a command asked: {prompt}")

    monkeypatch.setattr(builtins, "input", asked)


@pytest.fixture
def stranger(tmp_path):
    """Returns a checkpoint of a model type that nobody knows, with code of its own."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photo.png")
    auto_map = {"AutoConfig": "code_of_stranger.Config", "AutoModel": "code_of_stranger.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "captain", "auto_map": auto_map}))
    (folder / "code_of_stranger.py").write_text(CODE)
    return str(folder)


def commands(folder, tmp_path):
    return [
        ["caption", "--model", folder, "--data", "scenes:size=3"],
        ["evaluate", "--model", folder, "--data", "scenes:size=3"],
        ["attach-vision", "--model", folder, "--backbone", folder, "--output", str(tmp_path / "new")],
        ["extract", "--images", str(tmp_path), "--backbone", folder, "--output", str(tmp_path / "new")],
    ]


@pytest.mark.parametrize("number", range(4))
def test_an_unknown_model_type_with_code(stranger, tmp_path, number, capsys):
    assert main(commands(stranger, tmp_path)[number]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "code_of_stranger" in line and "trust_remote_code=True" in line and stranger in line
    assert not list(tmp_path.rglob("ran"))
    assert not (tmp_path / "new").exists()


def test_training_from_an_unknown_model_type_with_code(stranger, tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text(f"model:\n  init_from: {stranger}\n")
    assert main(["train", "--config", str(config), f"training.output_dir={tmp_path / 'new'}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "code_of_stranger" in line
    assert not list(tmp_path.rglob("ran"))


@pytest.fixture
def known(tmp_path):
    """Returns a checkpoint of this package's, saved with its code, which somebody has changed."""
    folder = save_for_hub(tiny_captioner(), tiny_processor(), tmp_path / "known")
    for file in folder.glob("*.py"):
        file.write_text(CODE)
    return folder


def test_a_known_model_type_is_loaded_by_the_classes_of_the_package(known):
    model, processor = load_captioner(known)
    assert type(model).__module__.startswith("hf_ngsan.") and type(processor).__module__.startswith("hf_ngsan.")
    assert not (known / "ran").exists()


def test_a_tokenizer_with_code(known, capsys):
    file = known / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    auto_map = {"AutoTokenizer": [None, "code_of_stranger.Tokenizer"]}
    file.write_text(json.dumps({**settings, "tokenizer_class": "Strange", "auto_map": auto_map}))
    (known / "code_of_stranger.py").write_text(CODE)
    assert main(["caption", "--model", str(known), "--data", "scenes:size=3"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "code_of_stranger" in line and "tokenizer_config.json" in line and "trust_remote_code=True" in line
    assert not (known / "ran").exists()

"""Commands never run code of a checkpoint or ask about it, and shared models do not refer to it."""

import builtins
import json

import pytest
from PIL import Image

from hf_ngsan import save_for_hub
from hf_ngsan.cli import main
from hf_ngsan.loading.models import load_captioner, load_model
from hf_ngsan.sharing import write_checkpoint
from tests.tables import each_row

from .hub_stub import REPOSITORY
from .models.nsa_transformer.tiny import tiny_translator
from .models.tiny import tiny_captioner, tiny_processor, tiny_tokenizer
from .models.tiny_photos import pixel_captioner, pixel_processor

CODE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nraise SystemExit('stolen')\n"


@pytest.fixture(autouse=True)
def no_questions(monkeypatch):
    def asked(prompt=""):
        pytest.fail(f"a command asked: {prompt}")

    monkeypatch.setattr(builtins, "input", asked)


@pytest.fixture
def stranger(tmp_path):
    """Returns a checkpoint of an unknown model type, with code."""
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
        ["train", "--config", str(tmp_path / "config.yaml"), f"training.output_dir={tmp_path / 'new'}"],
    ]


@each_row("number", range(5))
def test_an_unknown_model_type_with_code(stranger, tmp_path, number, capsys):
    (tmp_path / "config.yaml").write_text(f"model:\n  init_from: {stranger}\n")
    assert main(commands(stranger, tmp_path)[number]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "code_of_stranger" in line
    assert not list(tmp_path.rglob("ran"))
    assert not (tmp_path / "new").exists()


@pytest.fixture
def known(tmp_path):
    """Returns a checkpoint of this package that was saved with its code, which was then changed."""
    folder = save_for_hub(tiny_captioner(), tiny_processor(), tmp_path / "known")
    for file in folder.glob("*.py"):
        file.write_text(CODE)
    return folder


def test_a_tokenizer_with_code(known, capsys):
    file = known / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    auto_map = {"AutoTokenizer": [None, "code_of_stranger.Tokenizer"]}
    file.write_text(json.dumps({**settings, "tokenizer_class": "Strange", "auto_map": auto_map}))
    (known / "code_of_stranger.py").write_text(CODE)
    assert main(["caption", "--model", str(known), "--data", "scenes:size=3"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert str(known) in line and "trust_remote_code=True" in line
    assert not (known / "ran").exists()


FOREIGN = {
    "in the folder": "code_of_stranger.Thing",
    "on the Hub": "user/stranger--code_of_stranger.Thing",
    "a list": [None, "code_of_stranger.Thing"],
    "no name of Python, beside one of ours": ["configuration_ngsan.X", "code_of_stranger.Some-Thing"],
}
MODELS = {
    "translator": lambda: (tiny_translator(), tiny_tokenizer()),
    "captioner of pixels": lambda: (pixel_captioner(), pixel_processor()),
}


def change(file, **settings):
    file.write_text(json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **settings}))


def foreign_settings(reference):
    kinds = ("AutoConfig", "AutoModel", "AutoProcessor", "AutoImageProcessor", "AutoFeatureExtractor")
    return dict.fromkeys(kinds, reference)


@pytest.fixture
def saved(tmp_path):
    def save(kind):
        folder = tmp_path / "model"
        for part in MODELS[kind]():
            part.save_pretrained(folder)
        (folder / "code_of_stranger.py").write_text(CODE)
        return folder

    return save


@each_row(
    ("kind", "reference"),
    [("captioner of pixels", FOREIGN["in the folder"]), *(("translator", item) for item in FOREIGN.values())],
)
def test_references_to_foreign_code_are_left_out_of_what_is_shared(kind, reference, saved, tmp_path):
    folder, auto_map = saved(kind), foreign_settings(reference)
    for file in ("config.json", "tokenizer_config.json", "processor_config.json", "generation_config.json"):
        change(folder / file, auto_map=auto_map, custom_pipelines={"translation": {"impl": "code_of_stranger.Thing"}})
    described = json.loads((folder / "config.json").read_text())
    if described.get("vision_config"):
        described["vision_config"] |= {"auto_map": auto_map}
        described["vision_config"]["backbone_config"] |= {"auto_map": auto_map}
        change(folder / "config.json", **described)
        image_processor = json.loads((folder / "processor_config.json").read_text())["image_processor"]
        change(folder / "processor_config.json", image_processor={**image_processor, "auto_map": auto_map})
    model, processor = load_model(folder)
    write_checkpoint(model, processor, tmp_path / "shared", REPOSITORY)
    for file in (tmp_path / "shared").iterdir():
        assert b"code_of_stranger" not in file.read_bytes(), file.name
    assert not list(tmp_path.rglob("ran"))


def test_a_backbone_of_transformers_asks_for_no_code(tmp_path):
    """transformers knows its type, but not as a backbone, so it would ask about the reference."""
    backbone = {"model_type": "bert", "auto_map": {"AutoBackbone": "code_of_stranger.Thing"}}
    pixel_captioner().save_pretrained(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    described["vision_config"]["backbone_config"] = backbone
    change(tmp_path / "config.json", **described)
    with pytest.raises(ValueError, match=r"bert|trust_remote_code"):
        load_captioner(tmp_path)

"""A model's folder holds all its files itself: links and names that lead elsewhere are refused before they are read."""

import json

import pytest

from hf_ngsan.loading.models import ModelFolderError
from hf_ngsan.sharing.cards import collect_card_facts
from tests.models.tiny import tiny_captioner, tiny_processor


@pytest.fixture
def folder(tmp_path):
    """A model, beside a folder of secrets."""
    (tmp_path / "outside").mkdir()
    for name in ("README.md", "evaluations.json", "model.safetensors"):
        (tmp_path / "outside" / name).write_text("secret: {}")
    tiny_captioner().save_pretrained(tmp_path / "model")
    tiny_processor().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_link_out_of_the_folder_is_refused(folder):
    (folder / "here").symlink_to(".")
    for name, target in {
        "README.md": folder.parent / "outside" / "README.md",
        "evaluations.json": "../outside/evaluations.json",
        "vocab.txt": "here/../../outside/README.md",
        "onnx": "../outside",
    }.items():
        (folder / name).symlink_to(target)
        with pytest.raises(ModelFolderError, match="link"):
            collect_card_facts(folder)
        (folder / name).unlink()


def test_links_within_the_folder_and_to_it_are_followed_and_code_may_lie_elsewhere(folder):
    (folder / "weights").mkdir()
    (folder / "model.safetensors").rename(folder / "weights" / "first.safetensors")
    (folder / "model.safetensors").symlink_to("weights/first.safetensors")
    (folder / "attention.py").symlink_to("../outside/README.md")
    (folder.parent / "link").symlink_to(folder)
    assert collect_card_facts(folder.parent / "link").own_card is None


def test_settings_that_name_what_is_elsewhere_are_refused(folder):
    outside = str(folder.parent / "outside")
    for file, settings in (
        ("model.safetensors.index.json", {"weight_map": {"a": "../outside/model.safetensors"}}),
        ("config.json", {"vision_config": {"pretrained": outside}}),
        (
            "config.json",
            {"vision_config": {"pretrained": outside, "backbone_config": {"a": 1}, "save_frozen_weights": False}},
        ),
        ("config.json", {"language_model_config": {"pretrained_text_encoder": outside}}),
    ):
        kept = (folder / file).read_bytes() if (folder / file).exists() else None
        (folder / file).write_text(json.dumps(settings))
        with pytest.raises(ModelFolderError, match=file.replace(".", r"\.")):
            collect_card_facts(folder)
        (folder / file).unlink()
        if kept is not None:
            (folder / file).write_bytes(kept)
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"] = {"pretrained": outside, "backbone_config": {"model_type": "resnet"}}
    (folder / "config.json").write_text(json.dumps(config))
    assert collect_card_facts(folder).training_config is None  # a model may tell where it began

"""A model's folder holds all its files itself: links and names that lead elsewhere are refused before they are read."""

import json
import os

import pytest
from safetensors.torch import load_file

from hf_ngsan.loading.models import ModelFolderError
from hf_ngsan.sharing.known_facts import known_facts
from hf_ngsan.sharing.own_files import refuse_files_elsewhere
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.tables import each_row

FILES = ["README.md", "training_config.yaml", "evaluations.json", "model.safetensors", "config.json", "unheard-of"]


@pytest.fixture
def folder(tmp_path):
    """A model, beside a folder of secrets."""
    folder, outside = tmp_path / "model", tmp_path / "outside"
    outside.mkdir()
    for file in FILES:
        (outside / file).write_text("secret: {}")
    tiny_captioner().save_pretrained(folder)
    tiny_processor().save_pretrained(folder)
    return folder


def point(folder, name: str, target) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)


WAYS = ["absolute", "../outside/{}", "./../model/../outside/{}", "here/here/../outside/{}", "sub/out/{}", "hop"]


@each_row(("name", "way"), [*((name, "absolute") for name in FILES[:3]), *(("model.safetensors", way) for way in WAYS)])
def test_a_link_out_of_the_folder(folder, name, way):
    target = folder.parent / "outside" / name if way == "absolute" else way.format(name)
    (folder / "here").symlink_to(".")
    (folder / "sub").mkdir()
    if way.startswith("sub"):
        (folder / "sub" / "out").symlink_to("../../outside")
    if way == "hop":
        (folder / "hop").symlink_to(f"../outside/{name}")
    point(folder, name, target)
    with pytest.raises(ModelFolderError, match="link"):
        known_facts(folder)


@each_row("place", [".eval_results", "additional_chat_templates", "code.py"])
def test_a_folder_that_is_a_link(folder, place):
    (folder / place).symlink_to(folder.parent / "outside")
    with pytest.raises(ModelFolderError, match=place):
        refuse_files_elsewhere(folder)


def test_a_folder_beside_it_whose_name_begins_alike(folder):
    (folder.parent / "model-private").mkdir()
    point(folder, "README.md", folder.parent / "model-private" / "README.md")
    with pytest.raises(ModelFolderError, match=r"README\.md"):
        refuse_files_elsewhere(folder)


def test_links_within_the_folder_and_to_it_are_followed_and_code_may_lie_elsewhere(folder):
    (folder / "weights").mkdir()
    (folder / "model.safetensors").rename(folder / "weights" / "first.safetensors")
    point(folder, "model.safetensors", "weights/first.safetensors")
    (folder / "README.md").symlink_to("README.md")
    point(folder, "attention.py", "../outside/README.md")
    (folder.parent / "link").symlink_to(folder)
    assert known_facts(folder.parent / "link").own_card is None


def test_a_pipe_is_not_waited_for(folder):
    os.mkfifo(folder / "README.md")
    with pytest.raises(ModelFolderError, match="pipe"):
        known_facts(folder)


@each_row("target", ["../outside/model.safetensors", "{outside}/model.safetensors", "..", 5, None])
def test_an_index_of_weights_names_files_of_the_folder(folder, target):
    target = target.format(outside=folder.parent / "outside") if isinstance(target, str) else target
    weights = dict.fromkeys(load_file(folder / "model.safetensors"), target)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    with pytest.raises(ModelFolderError, match="weight_map"):
        refuse_files_elsewhere(folder)
    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(weights, "model.safetensors")}))
    refuse_files_elsewhere(folder)


@each_row(
    ("file", "settings"),
    [
        ("tokenizer_config.json", {"fast_tokenizer_files": ["../outside/tokenizer.4.0.0.json"]}),
        ("config.json", {"configuration_files": ["config./../../outside/config.4.0.0.json"]}),
        ("config.json", {"transformers_weights": "../outside/model.safetensors"}),
        ("config.json", {"vision_config": {"pretrained": "OUTSIDE"}}),
        ("config.json", {"vision_config": {"pretrained": "OUTSIDE/config.json", "backbone_config": {}}}),
        (
            "config.json",
            {"vision_config": {"pretrained": "OUTSIDE", "backbone_config": {"a": 1}, "save_frozen_weights": False}},
        ),
        ("config.json", {"text_pretrained": "OUTSIDE"}),
        ("config.json", {"language_model_config": {"pretrained_text_encoder": "OUTSIDE"}}),
        ("processor_config.json", {"audio_tokenizer": {"audio_tokenizer_name_or_path": "OUTSIDE"}}),
        ("audio_tokenizer_config.json", {"audio_tokenizer_name_or_path": "OUTSIDE"}),
        ("adapter_config.json", {"base_model_name_or_path": "OUTSIDE"}),
    ],
)
def test_settings_that_name_what_is_elsewhere(folder, file, settings):
    text = json.dumps(settings).replace("OUTSIDE", str(folder.parent / "outside"))
    (folder / file).write_text(text)
    with pytest.raises(ModelFolderError, match=file.replace(".", r"\.")):
        refuse_files_elsewhere(folder)


def test_where_a_model_began_may_be_told(folder):
    text = json.dumps(
        {"vision_config": {"pretrained": str(folder.parent), "backbone_config": {"model_type": "resnet"}}}
    )
    (folder / "config.json").write_text(text)
    refuse_files_elsewhere(folder)

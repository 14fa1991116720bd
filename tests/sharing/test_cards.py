"""Cards: scores over seeds, escaped values, and facts that are read only from the model's folder."""

import json
from dataclasses import replace

import pytest

from hf_ngsan.exporting.onnx_folder import source_files
from hf_ngsan.loading.hub import save_for_hub
from hf_ngsan.loading.models import ModelFolderError, load_model
from hf_ngsan.sharing.cards import (
    CardFacts,
    RecordedEvaluation,
    body,
    collect_card_facts,
    public,
    record,
    template,
    usage,
)
from hf_ngsan.sharing.upload import files_of, weight_files_checksum
from hf_ngsan.tasks.inspection import inspect
from hf_ngsan.training.task import Evaluation
from tests.hub_stub import REPOSITORY
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import pixel_captioner
from tests.tables import each_row

SCORES = {"cider_d": 0.5, "bleu_4": 0.25}
ONE = RecordedEvaluation("scenes", "test", 4000, SCORES, {"cider_d": "cider_d|beams:1"}, weights="", seed=0)


def text_of(folder, **facts) -> str:
    return body(tiny_captioner(), folder, REPOSITORY, None, CardFacts(**facts))


def test_scores_over_seeds_stand_beside_those_of_the_model(tmp_path):
    others = [[replace(ONE, seed=1, scores={"cider_d": 0.7}), replace(ONE, split="train")], [replace(ONE, rows=5)]]
    text = text_of(tmp_path, evaluations=[ONE], other_seeds=others)
    assert "(4,000 rows)" in text and "(seed 0)" in text and "seeds 0, 1 |" in text
    assert "| cider_d | 0.5000 | 0.6000 ± 0.1414 |" in text and "| bleu_4 | 0.2500 |  |" in text
    assert "- `cider_d|beams:1`\n- `bleu_4`\n" in text
    alone = text_of(tmp_path, evaluations=[replace(ONE, seed=None)])
    assert "| metric | value |" in alone and "±" not in alone and "variation over seeds" in alone
    assert "variation over seeds" not in text


@each_row(
    ("expression", "text"),
    [("value", "&#60;hr&#62;"), ("value | code", "<code>&#60;hr&#62;</code>"), ("value | markdown", "<hr>")],
)
def test_a_value_is_text_unless_the_template_says_otherwise(expression, text):
    environment = template().environment
    assert environment.from_string("{{ " + expression + " }}").render(value="<hr>") == text


def test_scores_of_an_ensemble_go_into_no_folder_of_one_of_its_models(folder, tmp_path):
    evaluation = Evaluation({"cider_d": 1.0})
    with pytest.raises(ValueError, match="file"):
        record([str(folder)] * 2, "scenes", "test", evaluation)
    assert not (folder / "evaluations.json").exists()
    record([str(folder)] * 2, "scenes", "test", evaluation, file=tmp_path / "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text())["model"] == [str(folder)] * 2


@pytest.fixture
def folder(tmp_path):
    """A model, next to a folder of secrets."""
    (tmp_path / "outside").mkdir()
    for name in ("README.md", "evaluations.json", "model.safetensors"):
        (tmp_path / "outside" / name).write_text("secret: {}")
    tiny_captioner().save_pretrained(tmp_path / "model")
    tiny_processor().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_what_is_of_this_machine_or_of_no_task(folder):
    assert public({"pretrained": [str(folder), "user/name"]}) == {"pretrained": ["model", "user/name"]}
    for spec, shown in {
        "vqa:/home/a/vqa,features=/home/a/clients/acme,skip_errors=true": "vqa:vqa,features=acme,skip_errors=true",
        "images:/home/a,b/photos,image=img": "images:photos,image=img",
        "images:~/photos": "images:photos",
        "images:user/photos": "images:user/photos",
        "scenes:size=20,seed=1": "scenes:size=20,seed=1",
        "http://host/a": "http://host/a",
    }.items():
        assert public({"images": spec}) == {"images": shown}
    with pytest.raises(ModelFolderError, match="seed"):
        collect_card_facts(folder, [folder])
    lines = usage(pixel_captioner().model.vision, '"user/part"').splitlines()
    assert lines[2] == 'model = AutoModel.from_pretrained("user/part", trust_remote_code=True)'


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


def test_hidden_files_belong_to_nobody(folder, tmp_path):
    before = weight_files_checksum(folder), source_files(folder), files_of(folder), inspect(folder)
    for name in ("config.json", "model.safetensors", "code.py", "model.safetensors.index.json"):
        (folder / f"._{name}").write_bytes(b"\0\x05\x16\x07")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "config.json").write_text("{")
    assert (weight_files_checksum(folder), source_files(folder), files_of(folder), inspect(folder)) == before
    assert collect_card_facts(folder).own_card is None
    model, processor = load_model(folder)
    model.config.pretrained = str(tmp_path)
    save_for_hub(model, processor, folder)
    assert json.loads((folder / "config.json").read_text())["pretrained"] == tmp_path.name


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
    assert collect_card_facts(folder).training_config is None  # a model may state its initial weights

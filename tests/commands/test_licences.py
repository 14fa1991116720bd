"""Derived models keep the licences and names of the models that their weights come from."""

import json
import shutil

import pytest
from huggingface_hub import ModelCard
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_ngsan.cli import main
from hf_ngsan.io.packaged import CAPTIONER, Source, licence_of, packaged_models, sources_of
from hf_ngsan.loading.models import load_model, save_model
from hf_ngsan.sharing import write_checkpoint
from tests.commands.running import fails, prints
from tests.exporting import eager
from tests.hub_stub import REPOSITORY
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import pixel_captioner

TERMS = "# Terms\n\nFor research alone.\n"
HEADER = "---\nlicense: other\nlicense_name: research-alone\nlicense_link: LICENSE.md\n---\n# A captioner\n"


@pytest.fixture
def licensed(run, tmp_path):
    """A trained captioner as another person shared it."""
    folder = shutil.copytree(run / "best", tmp_path / "theirs")
    (folder / "README.md").write_text(HEADER)
    (folder / "LICENSE.md").write_text(TERMS)
    return folder


@pytest.fixture
def unchecked(monkeypatch):
    monkeypatch.setattr("hf_ngsan.sharing.upload.check_checkpoint", lambda folder: None)


def assert_stated(folder, names=("theirs",)):
    """The configuration of a model names its sources, and their licence texts are in its folder."""
    actual = sources_of(json.loads((folder / "config.json").read_text()))
    assert [source.name for source in actual] == list(names), folder
    assert actual[-1].terms == ("other", "research-alone", "LICENSE"), folder
    assert (folder / "LICENSE").read_text() == TERMS, folder


def test_every_way_of_training_keeps_them(licensed, config, tmp_path, capsys, unchecked):
    """Fine-tuning, fine-tuning of the result, distillation from it, and a push of the distilled model."""
    ways = {
        "tuned": [f"model.init_from={licensed}"],
        "again": [f"model.init_from={tmp_path / 'tuned'}"],
        "taught": ["training.stage=distill", f"training.teachers=[{tmp_path / 'tuned' / 'last'}]"],
    }
    ways["taught"] += [f"model.init_from={config.parent / 'run'}", "distillation.epochs=1"]
    for name, settings in ways.items():
        assert main(["train", "--config", str(config), *settings, f"training.output_dir={tmp_path / name}"]) == 0
        for part in ("best", "last"):
            assert_stated(tmp_path / name / part)
    prints(capsys, "push", tmp_path / "taught", REPOSITORY, "--dry-run", tmp_path / "shared")
    card = ModelCard.load(tmp_path / "shared" / "README.md")
    assert (card.data.license, card.data.license_name) == ("other", "research-alone")
    assert "theirs" in card.text
    assert_stated(tmp_path / "shared")


def test_a_vision_encoder_an_export_and_saving_keep_them(licensed, captioner, tmp_path, capsys, monkeypatch):
    eager.use_eager_graphs(monkeypatch)
    save_model(*load_model(licensed), tmp_path / "saved")
    assert_stated(tmp_path / "saved")
    model = AutoModelForImageTextToText.from_pretrained(licensed)
    write_checkpoint(model, AutoProcessor.from_pretrained(licensed), tmp_path / "shared", REPOSITORY)
    assert_stated(tmp_path / "shared")
    assert main(["export", "--model", str(licensed), "--output", str(tmp_path / "exported")]) == 0
    [source] = json.loads((tmp_path / "exported" / "captioner.json").read_text())["weights_from"]
    assert source["license_name"] == "research-alone"
    assert (tmp_path / "exported" / "LICENSE").read_text() == TERMS

    shutil.copytree(captioner, tmp_path / "backbone")
    (tmp_path / "backbone" / "README.md").write_text("---\nlicense: mit\n---\n")
    (tmp_path / "backbone" / "LICENSE").write_text("MIT\n")
    width = pixel_captioner().config.visual_feature_size
    (captioner := tiny_captioner(visual_feature_size=width)).save_pretrained(tmp_path / "features")
    tiny_processor().save_pretrained(tmp_path / "features")
    (tmp_path / "features" / "README.md").write_text(HEADER)
    (tmp_path / "features" / "LICENSE").write_text(TERMS)
    assert captioner.config.vision_config is None
    words = ["--model", tmp_path / "features", "--backbone", tmp_path / "backbone"]
    prints(capsys, "attach-vision", *words, "--output", tmp_path / "seeing")
    config = json.loads((tmp_path / "seeing" / "config.json").read_text())
    assert {source.name for source in sources_of(config)} == {"features", "backbone"}
    assert licence_of(config) == Source("", "other", "mit and research-alone", "LICENSE")
    text = (tmp_path / "seeing" / "LICENSE").read_text()
    assert TERMS in text and "MIT\n" in text


@pytest.mark.slow
def test_an_exported_dual_encoder_keeps_them(dual_encoder, tmp_path):
    shutil.copytree(dual_encoder, tmp_path / "theirs")
    (tmp_path / "theirs" / "README.md").write_text(HEADER)
    (tmp_path / "theirs" / "LICENSE").write_text(TERMS)
    assert main(["export", "--model", str(tmp_path / "theirs"), "--output", str(tmp_path / "towers")]) == 0
    assert_stated(tmp_path / "towers")


def packaged_terms() -> str:
    return (packaged_models()[CAPTIONER] / "LICENSE").read_text()


def test_a_model_from_a_packaged_one_is_shared_with_its_name_and_licence(tmp_path, capsys, unchecked):
    save_model(*load_model(CAPTIONER), tmp_path / "mine")
    prints(capsys, "push", tmp_path / "mine", REPOSITORY, "--dry-run", tmp_path / "shared")
    card = ModelCard.load(tmp_path / "shared" / "README.md").data
    assert (card.license, card.license_name) == ("other", "non-commercial-research-and-education")
    assert card.base_model == CAPTIONER and (tmp_path / "shared" / "LICENSE").read_text() == packaged_terms()


def test_a_card_of_a_user_states_a_licence_if_the_weights_have_one(licensed, tmp_path, capsys, unchecked):
    save_model(*load_model(licensed), tmp_path / "mine")
    (tmp_path / "mine" / "README.md").write_text("# Mine\n")
    message = fails(capsys, "push", tmp_path / "mine", REPOSITORY, "--dry-run", tmp_path / "shared")
    assert "research-alone" in message and not (tmp_path / "shared").exists()
    (tmp_path / "mine" / "README.md").write_text(HEADER)
    prints(capsys, "push", tmp_path / "mine", REPOSITORY, "--dry-run", tmp_path / "shared")


def test_a_model_of_the_hub_is_named_by_its_repository(licensed, tmp_path, monkeypatch, capsys, unchecked):
    """The card and the licence text are in the cache, for the name and for the path of the snapshot."""
    cache = tmp_path / "hub"
    repository = cache / "models--somebody--theirs"
    snapshot = repository / "snapshots" / ("0" * 40)
    (repository / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    for file in licensed.iterdir():
        shutil.copyfile(file, repository / "blobs" / file.name)
        (snapshot / file.name).symlink_to(repository / "blobs" / file.name)
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", str(cache))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(cache))
    for number, name in enumerate(("somebody/theirs", snapshot)):
        save_model(*load_model(name), tmp_path / f"mine-{number}")
        assert_stated(tmp_path / f"mine-{number}", ["somebody/theirs"])
    prints(capsys, "push", tmp_path / "mine-0", REPOSITORY, "--dry-run", tmp_path / "shared")
    assert ModelCard.load(tmp_path / "shared" / "README.md").data.base_model == "somebody/theirs"

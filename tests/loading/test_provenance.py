"""A captioner stores the provenance of its features, and rejects features of another known provenance."""

import json

import pytest
from datasets import DatasetDict, concatenate_datasets

from hf_ngsan.cli import main
from hf_ngsan.data import load_data
from hf_ngsan.loading.hub import save_for_hub
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.loading.provenance import features_provenance
from hf_ngsan.tasks import train
from hf_ngsan.tasks.caption_rows import rows_for
from hf_ngsan.tasks.captioning_models import new_captioner
from tests.extraction.tiny import BACKBONE, extract, tiny_processor, tiny_vision, write_coco_file, write_photos
from tests.tables import each_row

from ..tasks.tiny import tiny_training_config

SPLITS = ("train", "validation", "test")


def identity(weights: str) -> dict:
    checksums = {"weights": weights, "config": "c", "preprocessing": "p"}
    return {"kind": "grid", "backbone_type": "ngsan_vgg", "checksums": checksums}


def write_features(folder, *, train=None, validation=None, test=None):
    """Scenes whose features are marked, for each split, as made by a backbone with these weights."""
    splits = {}
    for split, weights in zip(SPLITS, (train, validation, test), strict=True):
        splits[split] = load_data("scenes:size=30,seed=3", split)
        splits[split].info.description = "" if weights is None else json.dumps(identity(weights))
    DatasetDict(splits).save_to_disk(folder)
    return f"features:{folder}"


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    return {
        "ours": write_features(folder / "ours", **dict.fromkeys(SPLITS, "A")),
        "others": write_features(folder / "others", **dict.fromkeys(SPLITS, "B")),
        "unknown": write_features(folder / "unknown"),
        "mixed": write_features(folder / "mixed", train="A", validation="B"),
    }


def config_on(spec, output_dir):
    return tiny_training_config(output_dir, data={"spec": spec}, training={"epochs": 1})


def tuning(spec, folder, output_dir):
    config = config_on(spec, output_dir)
    config.model.clear()
    config.model["init_from"] = str(folder)
    return config


@pytest.fixture(scope="module")
def trained(features, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(config_on(features["ours"], folder))
    return folder


def test_a_saved_captioner_remembers(trained, tmp_path):
    model, processor = load_captioner(trained)
    assert model.config.features_provenance == identity("A")
    save_for_hub(model, processor, tmp_path / "hub")
    assert json.loads((tmp_path / "hub/config.json").read_text())["features_provenance"] == identity("A")


def evaluate(model, spec) -> int:
    return main(["evaluate", "--model", str(model), "--data", spec, "--split", "test", "--num-beams", "1"])


def caption(model, spec) -> int:
    return main(["caption", "--model", str(model), "--data", spec, "--limit", "1"])


@each_row("command", [evaluate, caption])
def test_features_of_another_backbone_are_refused_in_one_sentence(command, trained, features, capsys):
    assert command(trained, features["ours"]) == 0
    assert command(trained, features["unknown"]) == 0
    capsys.readouterr()
    assert command(trained, features["others"]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert features["others"] in line and "weights" in line


def test_training_and_fine_tuning_need_the_same_features(trained, features, tmp_path):
    for config in (
        config_on(features["mixed"], tmp_path / "run"),
        tuning(features["others"], trained, tmp_path / "run"),
    ):
        with pytest.raises(ValueError, match="weights"):
            train(config)
        assert not (tmp_path / "run").exists()
    for name in ("ours", "unknown"):
        result = train(tuning(features[name], trained, tmp_path / name))
        assert load_captioner(result.best_dir)[0].config.features_provenance == identity("A")


def test_rows_of_two_backbones_put_together_are_refused(features):
    ours, others = (load_data(features[name], "test") for name in ("ours", "others"))
    with pytest.raises(ValueError, match="2 backbones"):
        features_provenance(concatenate_datasets([ours, others]), "both")
    assert features_provenance(concatenate_datasets([ours, ours]).shuffle(0).select(range(3)), "ours") == identity("A")


VISION = {"backbone_config": BACKBONE, "grid_size": [2, 2]}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Features of two backbones, and the folder of the first."""
    folder = tmp_path_factory.mktemp("seen")
    photos = write_photos(folder / "photos", 3)
    captions = {index: ["a photo of noise", "noise"] for index in (1, 2, 3)}
    coco = write_coco_file(photos / "captions.json", {index: f"{index:06d}.png" for index in captions}, captions)
    for name, seed in (("ours", 0), ("others", 1)):
        extract(str(coco), folder / name, model=tiny_vision(seed), split="test")
    tiny_vision(0).backbone.save_pretrained(folder / "backbone")
    tiny_processor().save_pretrained(folder / "backbone")
    return folder


def test_features_must_be_those_of_the_vision_encoder(seen, tmp_path):
    named = {**VISION, "pretrained": str(seen / "backbone")}
    model, processor = new_captioner(tiny_training_config(tmp_path, {"vision_config": named}), ["noise"])
    assert len(rows_for(model, processor, load_data(f"features:{seen / 'ours'}", "test"), "ours")) == 3
    with pytest.raises(ValueError, match="weights"):
        rows_for(model, processor, load_data(f"features:{seen / 'others'}", "test"), "others")
    processor.image_processor.image_mean = [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="preprocessing"):
        rows_for(model, processor, load_data(f"features:{seen / 'ours'}", "test"), "ours")
    larger = {**named, "grid_size": [3, 3]}
    model, processor = new_captioner(tiny_training_config(tmp_path, {"vision_config": larger}), ["noise"])
    with pytest.raises(ValueError, match=r"2, 2.*not.*3, 3"):
        rows_for(model, processor, load_data(f"features:{seen / 'ours'}", "test"), "ours")

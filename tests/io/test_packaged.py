"""The packaged trained models: found by name, small, self-contained, and with the scores on their cards."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub import metadata_load
from matplotlib.cbook import get_sample_data
from safetensors import safe_open

from hf_ngsan import packaged_model, save_for_hub
from hf_ngsan.cli import main
from hf_ngsan.data import draw_scene, load_data
from hf_ngsan.io.packaged import (
    CAPTIONER,
    CAPTIONERS_OF_SCENES,
    DUAL_ENCODER,
    copy_config,
    describe_config,
    find_config,
    packaged_configs,
    packaged_models,
    say_new_name,
)
from hf_ngsan.loading.calibration import read_calibration, read_search_calibration
from hf_ngsan.loading.models import find_model_folder, load_captioner, load_model
from hf_ngsan.metrics.diagnostics import is_bad_ending
from hf_ngsan.tasks import load_training_config
from tests.commands.running import fails
from tests.guests.tiny import save, tiny
from tests.loading.test_hub import result_of
from tests.models.tiny import tiny_captioner
from tests.tables import each_row

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "checkpoints" / CAPTIONER
CONFIGS = ROOT / "examples" / "configs"
SEARCH = ROOT / "checkpoints" / DUAL_ENCODER
PHOTOGRAPH = get_sample_data("grace_hopper.jpg", asfileobj=False)
DATA = Path(os.environ.get("HF_NGSAN_TEST_DATA", "absent"), "data", "flickr8k")
MEGABYTE = 1_000_000

BY_FOLDER = f"""
import json, socket
import hf_ngsan
import transformers
from transformers import pipeline

asked = []
socket.socket.connect = socket.getaddrinfo = lambda *arguments, **more: asked.append(str(arguments)) or 1 / 0
folder, photograph = hf_ngsan.packaged_model({CAPTIONER!r}), {PHOTOGRAPH!r}
pipes = [
    pipeline("image-to-text", model=folder),
    pipeline("image-text-to-text", folder),
    pipeline("image-to-text", model=folder, config=folder, trust_remote_code=True),
]
captions = [pipe(photograph)[0]["generated_text"] for pipe in pipes]
loaders = [getattr(transformers, "Auto" + end) for end in (
    "Config", "Model", "ModelForImageTextToText", "Processor", "ImageProcessor", "Tokenizer")]
kinds = [type(loader.from_pretrained(folder)).__name__ for loader in loaders]
try:
    transformers.AutoConfig.from_pretrained({CAPTIONER!r})
except OSError:  # as the name of any model that is not on the Hub
    print(json.dumps([captions, kinds, asked]))
"""


@pytest.fixture(scope="module")
def caption() -> str:
    """The caption of a photograph that was not used in training."""
    model, processor = load_captioner(CAPTIONER)
    inputs = processor(images=[PHOTOGRAPH])
    return processor.batch_decode(model.generate(**inputs), skip_special_tokens=True)[0]


def test_its_name_is_that_of_its_folder_unless_there_is_such_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert list(packaged_models()) == [DUAL_ENCODER, CAPTIONER, "ngsan-scenes", "ngsan-signed-scenes", "san-scenes"]
    assert find_model_folder(CAPTIONER) == packaged_model(CAPTIONER) == str(FOLDER)
    with pytest.raises(ValueError, match=r"'none'.*mhsan-photos.*san-scenes"):
        packaged_model("none")
    tiny_captioner().save_pretrained(tmp_path / CAPTIONER)
    assert find_model_folder(CAPTIONER) == CAPTIONER


def test_a_former_name_still_loads_and_says_the_new_one(capsys):
    say_new_name.cache_clear()
    assert find_model_folder("ngsan-flickr8k") == str(FOLDER)
    assert packaged_model("mhsan-flickr8k") == packaged_model(DUAL_ENCODER)
    output = capsys.readouterr()
    assert output.out == "" and [CAPTIONER in line for line in output.err.splitlines()] == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["hf_ngsan", "transformers.pipelines"])
def test_all_that_transformers_loads_takes_its_folder_and_asks_nobody(caption, first, tmp_path):
    captions, kinds, asked = result_of(f"import {first}\n{BY_FOLDER}", tmp_path)
    assert captions == [caption] * 3
    assert kinds == [
        "NGSANConfig", "NGSANModel", "NGSANForConditionalGeneration", "NGSANProcessor", "CaptioningImageProcessor",
        "TokenizersBackend",
    ]  # fmt: skip
    assert asked == []


def test_a_packaged_model_is_not_written_into(tmp_path, monkeypatch, capsys):
    installed = tmp_path / "site-packages" / "hf_ngsan"
    folder = shutil.copytree(ROOT / "checkpoints" / "ngsan-scenes", installed / "checkpoints" / "ngsan-scenes")
    monkeypatch.setattr("hf_ngsan.io.packaged.PACKAGE", installed)
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    for name in ("ngsan-scenes", folder):
        data = ["--data", "scenes:size=1,validation=2,test=2"]
        for command in (["evaluate", *data, "--record"], ["calibrate", *data], ["export"]):
            assert "cp -r" in fails(capsys, *command, "--model", name), command
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_captioners_of_scenes_are_small_of_seed_0_and_as_good_as_their_record(capsys):
    for name in CAPTIONERS_OF_SCENES.values():
        folder = Path(packaged_model(name))
        assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < MEGABYTE, name
        card, recorded = metadata_load(folder / "README.md"), json.loads((folder / "scores.json").read_text())
        config = yaml.safe_load((folder / "training_config.yaml").read_text())
        assert card["license"] == "apache-2.0" and recorded["seed"] == config["training"]["seed"] == 0, name
        assert recorded["seeds"].keys() == {"0", "1", "2"}, name
        spec = config["data"]["spec"].replace("test=500", "test=60")
        assert main(["evaluate", "--model", name, "--data", spec]) == 0
        actual, expected = json.loads(capsys.readouterr().out), recorded["seeds"]["0"]
        for group in ("objects", "symmetric", "directional"):
            assert actual[group] == pytest.approx(expected[group], abs=0.08), (name, group)


@each_row("folder", [FOLDER, SEARCH])
def test_its_weights_are_few_halved_and_without_those_of_packages_and_its_code_lies_elsewhere(folder, tmp_path):
    """The wheel adds the code, which is in the repository only once and without links."""
    file, is_own = folder / "model.safetensors", folder == FOLDER
    assert file.stat().st_size < (16 if is_own else 12) * MEGABYTE
    with safe_open(file, "pt") as weights:
        names = list(weights.keys())
        assert {weights.get_tensor(name).dtype for name in names} == {torch.float16}
    assert not [name for name in names if name.startswith("text.")]
    assert any(".backbone." in name for name in names) == is_own  # fine-tuned, so its weights are in no package
    save_for_hub(*load_model(folder), tmp_path)
    [file] = folder.rglob("*.py")
    assert file.name == "parts.py" and file.read_bytes() == (tmp_path / "parts.py").read_bytes()
    assert not [path for path in folder.rglob("*") if path.is_symlink()]


def test_the_command_uses_it_where_no_model_is_named(caption, capsys):
    assert main(["caption", PHOTOGRAPH]) == 0
    assert capsys.readouterr().out == f"{PHOTOGRAPH}\t{caption}\n"
    words = caption.split()
    assert 4 <= len(words) <= 20 and not is_bad_ending(words[-1])
    assert {"man", "woman", "person", "boy", "girl", "people"} & set(words)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="HF_NGSAN_TEST_DATA names no folder with data/flickr8k")
def test_captions_and_search_reach_their_recorded_scores(capsys):
    """Scores from photographs; the weights were rounded to half precision after the scores were measured."""
    data = ["--data", f"images:{DATA}", "--split", "validation"]
    caption_scores, search_scores = (json.loads((folder / "scores.json").read_text()) for folder in (FOLDER, SEARCH))
    assert main(["evaluate", "--model", CAPTIONER, *data, "--num-beams", "3"]) == 0
    expected = caption_scores["scores"]["flickr8k"]["cider_d"]
    assert json.loads(capsys.readouterr().out)["cider_d"] == pytest.approx(expected, abs=0.003)
    assert main(["evaluate", "--model", DUAL_ENCODER, *data]) == 0
    actual, expected = json.loads(capsys.readouterr().out)["all"], search_scores["scores"]["flickr8k"]
    for name in ("image_to_text_r1", "text_to_image_r1"):
        assert actual[name] == pytest.approx(expected[name], abs=0.5)


def test_photographs_are_found_without_training_and_the_index_may_be_moved(tmp_path, capsys):
    folder = tmp_path / "photos"
    folder.mkdir()
    shutil.copy(PHOTOGRAPH, folder / "officer.jpg")
    for row in load_data("scenes:size=4,validation=2,test=2", "test"):
        draw_scene(row).save(folder / f"scene {row['image_id']}.png")
    assert main(["index", "--images", str(folder), "--output", str(tmp_path / "index"), "--num-workers", "0"]) == 0
    assert json.loads((tmp_path / "index" / "index.json").read_text())["model"] == DUAL_ENCODER
    capsys.readouterr()
    assert main(["search", str(tmp_path / "index"), "a man in a black hat"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split("\t")[1] == "officer.jpg"


def test_the_captioner_is_calibrated_with_the_dual_encoder(capsys):
    recorded = read_calibration(FOLDER)
    assert recorded.dual_encoder == DUAL_ENCODER and recorded.num_images >= 600
    assert recorded.auroc > 0.7 and recorded.calibration_error < 0.06
    assert 0.2 < read_search_calibration(SEARCH).min_similarity < 0.6
    assert main(["caption", PHOTOGRAPH, "--scores"]) == 0
    _, _, score, confidence, *_ = capsys.readouterr().out.strip().split("\t")
    assert float(score) < 0 and 0 < float(confidence) < 0.5, "it says what is not there"


def test_a_name_means_the_packaged_config_unless_there_is_such_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = CONFIGS / "ngsan" / "scenes.yaml"
    assert find_config("ngsan/scenes") == find_config("ngsan/scenes.yaml") == packaged
    (tmp_path / "ngsan" / "scenes").mkdir(parents=True)
    assert find_config("ngsan/scenes") == packaged, "a folder is no config"
    Path("ngsan/scenes.yaml").write_text("training: {epochs: 77}")
    assert find_config("ngsan/scenes.yaml") == Path("ngsan/scenes.yaml")
    assert load_training_config("ngsan/scenes.yaml").training.epochs == 77
    assert load_training_config("ngsan/scenes").training.epochs == 8
    with pytest.raises(FileNotFoundError, match=r"ngsan/scens; .*ngsan/scenes\?"):
        load_training_config("ngsan/scens")


@each_row("name", packaged_configs())
def test_a_copy_is_the_same_config(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy_config(name, "new/copy.yaml")
    changes = ["training.output_dir=x"]
    if name.startswith("guests/"):  # the names refer to the Hub
        changes.append(f"model.init_from={save(tiny(name.split('/')[1]), tmp_path / 'guest')}")
    copied, packaged = load_training_config("new/copy.yaml", changes), load_training_config(name, changes)
    assert copied == packaged
    assert describe_config(Path("new/copy.yaml")) == describe_config(packaged_configs()[name])

"""From a checkpoint of torchvision to captions of photos: convert, extract, train on features, evaluate, caption."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from hf_ngsan.cli import main
from hf_ngsan.data import load_data
from tests.conversion.layouts import vgg_state_dict
from tests.extraction.tiny import write_coco_file

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "examples/configs/spatial_captioner/coco.yaml"
SMALL = {"encoder_layers": 1, "decoder_layers": 1, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}
SHORT = {"training.epochs": 1, "training.batch_size": 4, "training.num_threads": 1, "training.tracker": "null"}
NUMBERS = {"train": 6, "validation": 3}


def hf_ngsan(*words) -> int:
    return main([str(word) for word in words])


def convert(folder: Path, name: str, side: int = 64):
    """A VGG-11 with random weights, which is told to look at images of 64 x 64 pixels to be fast."""
    import convert_torchvision_backbone as script

    torch.save(vgg_state_dict(), folder / f"{name}.pth")
    options = ["--architecture", "vgg11", "--checkpoint", f"{folder / name}.pth", "--output", str(folder / name)]
    assert script.main(script.__doc__, list(script.CONFIGURATIONS), script.convert_checkpoint, options) == 0
    file = folder / name / "preprocessor_config.json"
    settings = json.loads(file.read_text())
    assert settings["size"] == {"height": 224, "width": 224}
    file.write_text(json.dumps({**settings, "size": {"height": side, "width": side}}))


def draw_photos(folder: Path, split: str) -> Path:
    """Drawn scenes as PNG files, and a COCO file of their captions."""
    folder.mkdir()
    rows = load_data(f"scenes:size={NUMBERS[split]},validation=3,seed=1,images=true,image_size=80", split)
    names, captions = {}, {}
    for row in rows:
        names[row["image_id"]] = f"{row['image_id']}.png"
        captions[row["image_id"]] = list(row["captions"])
        row["image"].save(folder / names[row["image_id"]])
    return write_coco_file(folder / "captions.json", names, captions)


def extract(folder: Path, backbone: str, split: str, output: str) -> int:
    words = ["--backbone", folder / backbone, "--split", split, "--output", folder / output, "--num-workers", "0"]
    return hf_ngsan("extract", "--images", folder / split / "captions.json", "--dtype", "float32", *words)


def train(folder: Path, backbone: str, features: str, run: str, *more) -> int:
    vision = {**yaml.safe_load(CONFIG.read_text())["model"]["vision_config"], "pretrained": str(folder / backbone)}
    overrides = {**{f"model.{name}": value for name, value in SMALL.items()}, **SHORT}
    overrides |= {"data.min_word_count": 1, "data.num_workers": 0, "data.spec": f"features:{folder / features}"}
    words = [f"{name}={value}" for name, value in overrides.items()]
    words += [f"model.vision_config={json.dumps(vision)}", f"training.output_dir={folder / run}"]
    return hf_ngsan("train", "--config", CONFIG, *words, *more)


def evaluate(folder: Path, features: str) -> int:
    return hf_ngsan(
        "evaluate", "--model", folder / "run", "--data", f"features:{folder / features}", "--split", "validation"
    )


@pytest.fixture(scope="module")
def journey(tmp_path_factory):
    """The whole road, with the features of another backbone beside it."""
    folder = tmp_path_factory.mktemp("journey")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "conversion"))
        torch.manual_seed(0)
        for name in ("vgg11", "other"):
            convert(folder, name)
    for split in NUMBERS:
        draw_photos(folder / split, split)
        assert extract(folder, "vgg11", split, "features") == 0
    assert extract(folder, "other", "validation", "other_features") == 0
    assert train(folder, "vgg11", "features", "run") == 0
    return folder


def test_a_photo_is_captioned_as_its_features_are(journey, capsys):
    photos = sorted((journey / "validation").glob("*.png"))
    assert hf_ngsan("caption", "--model", journey / "run", *photos) == 0
    by_name = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    of_photos = {Path(name).stem: caption for name, caption in by_name.items()}
    words = ["--data", f"features:{journey / 'features'}", "--split", "validation"]
    assert hf_ngsan("caption", "--model", journey / "run", *words) == 0
    of_features = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert len(of_photos) == NUMBERS["validation"] and all(of_photos.values())
    assert of_photos == of_features


def test_the_trained_folder_needs_no_other(journey, tmp_path, capsys):
    """Neither the folder of the backbone nor that of the features."""
    shutil.copytree(journey / "run" / "best", tmp_path / "captioner")
    shutil.move(journey / "vgg11", tmp_path / "away")
    try:
        photo = next((journey / "train").glob("*.png"))
        assert hf_ngsan("caption", "--model", tmp_path / "captioner", photo, "--save-attention", tmp_path / "maps") == 0
    finally:
        shutil.move(tmp_path / "away", journey / "vgg11")
    assert capsys.readouterr().out.startswith(f"{photo}\t")
    assert list((tmp_path / "maps").glob("*.png"))


def refusal(capsys) -> str:
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hf-ngsan: error: ")]
    return line


def test_features_of_another_backbone_are_refused(journey, capsys):
    assert evaluate(journey, "other_features") == 2
    assert "other_features (ngsan_vgg) were made with other weights than" in refusal(capsys)
    assert train(journey, "other", "features", "refused") == 2
    assert "other weights than the model's vision encoder has" in refusal(capsys)
    assert train(journey, "vgg11", "features", "refused", "data.image_size=32") == 2
    assert "another preprocessing than the model's vision encoder has" in refusal(capsys)
    assert not (journey / "refused").exists()

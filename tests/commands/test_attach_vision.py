"""`hf-ngsan attach-vision`: extract once, train on features, attach the vision encoder, caption photographs."""

import os
from pathlib import Path

import pytest
import yaml

from hf_ngsan.cli import main
from hf_ngsan.loading.models import load_captioner
from tests.extraction.tiny import tiny_processor, tiny_vision, write_coco_file
from tests.models.tiny_photos import PHOTOS
from tests.tasks.tiny import tiny_sections

from .running import fails, prints

MODEL = {"query_norm": None, "initializer_range": 1.0}
"""Large random weights: a captioner with a different caption for every image."""
TRAINING = {"epochs": 1}
CAPTIONS = ["a red circle", "a blue square left of a dot", "two dots", "a small star above a red circle", "a dot"]


def write_backbone(folder: Path, seed: int = 0, **processor) -> Path:
    tiny_vision(seed).backbone.save_pretrained(folder)
    tiny_processor(**processor).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, backbones, features, and a run that was trained on the features."""
    folder = tmp_path_factory.mktemp("journey")
    write_backbone(folder / "backbone")
    write_backbone(folder / "other", seed=1)
    photos = folder / "photos"
    photos.mkdir()
    for number, photo in enumerate(PHOTOS, start=1):
        photo.save(photos / f"{number:06d}.png")
    names = {number: f"{number:06d}.png" for number in range(1, len(CAPTIONS) + 1)}
    captions = {number: [caption] for number, caption in zip(names, CAPTIONS, strict=True)}
    file = write_coco_file(photos / "captions.json", names, captions)
    extract = ["extract", "--images", file, "--backbone", folder / "backbone", "--grid-size", 2, 2, "--split", "train"]
    extract += ["--dtype", "float32", "--num-workers", 0, "--output", folder / "features"]
    assert main(list(map(str, extract))) == 0
    data = {"spec": f"features:{folder / 'features'}", "validation_split": None}
    sections = tiny_sections(folder / "run", model=MODEL, data=data, training=TRAINING)
    (folder / "train.yaml").write_text(yaml.safe_dump(sections))
    assert main(["train", "--config", str(folder / "train.yaml")]) == 0
    return folder


def attach(folder: Path, output: Path, *, model: str = "run", backbone: str = "backbone", grid=(2, 2)) -> list:
    words = ["attach-vision", "--model", folder / model, "--backbone", folder / backbone, "--output", output]
    return [*words, "--grid-size", *grid] if grid else words


def captions(capsys, *arguments) -> list[str]:
    return [line.split("\t")[1] for line in prints(capsys, "caption", *arguments).splitlines()]


def test_photos_get_the_captions_of_their_features(journey, tmp_path, capsys):
    output = tmp_path / "new" / "captioner"
    prints(capsys, *attach(journey, output))
    from_photos = captions(capsys, "--model", output, journey / "photos")
    data = ["--data", f"features:{journey / 'features'}", "--split", "train"]
    assert from_photos == captions(capsys, "--model", journey / "run", *data)
    assert from_photos == captions(capsys, "--model", output, *data)
    assert len(set(from_photos)) > 2
    assert os.listdir(output.parent) == ["captioner"]

    model, processor = load_captioner(output)
    trained, _ = load_captioner(journey / "run")
    assert model.generation_config.num_beams == trained.generation_config.num_beams
    assert model.config.features_provenance == trained.config.features_provenance
    assert processor.image_processor.size == tiny_processor().size


def test_another_encoder_than_that_of_the_features_is_refused(journey, tmp_path, capsys):
    write_backbone(tmp_path / "processor", image_mean=[0.0, 0.0, 0.0])
    output = tmp_path / "captioner"
    assert "other weights" in fails(capsys, *attach(journey, output, backbone="other"))
    for grid in ((2, 3), None):
        assert "grid" in fails(capsys, *attach(journey, output, grid=grid)), grid
    assert "another preprocessing" in fails(capsys, *attach(journey, output, backbone=tmp_path / "processor"))
    assert "another preprocessing" in fails(capsys, *attach(journey, output), "--image-size", 48)
    for option, value in (("--num-regions", 3), ("--score-threshold", 0.1), ("--suppression-threshold", 0.3)):
        assert f"{option} does not apply" in fails(capsys, *attach(journey, output), option, value)
    assert str(journey / "nothing") in fails(capsys, *attach(journey, output, backbone="nothing"))
    assert not output.exists()

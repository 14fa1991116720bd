"""From a whole CLIP to captions of photographs: extract, train on features, attach; and train from pixels."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from hf_ngsan.cli import main
from hf_ngsan.data import load_data
from hf_ngsan.loading.models import load_captioner
from tests.extraction.tiny import write_coco_file
from tests.models.test_transformers_backbones import write_clip
from tests.models.tiny_photos import PHOTOS
from tests.tables import each_row
from tests.tasks.tiny import tiny_sections

from .running import fails, prints

CAPTIONS = ["a red circle", "a blue square left of a dot", "two dots", "a small star above a red circle", "a dot"]


def rows_of(features: Path) -> list[dict]:
    return list(load_data(f"features:{features}", "train"))


def train(folder: Path, output: Path, spec: str, model=(), data=(), training=()) -> int:
    sections = tiny_sections(
        output,
        model=dict(model),
        data={"spec": spec, "validation_split": None, **dict(data)},
        training={"epochs": 1, "batch_size": 2, **dict(training)},
    )
    (folder / "train.yaml").write_text(yaml.safe_dump(sections))
    return main(["train", "--config", str(folder / "train.yaml")])


@pytest.fixture(scope="module")
def journey(tmp_path_factory) -> Path:
    """A whole CLIP, photographs, their features in the layer before the last, and a run on these."""
    folder = tmp_path_factory.mktemp("journey")
    write_clip(folder / "clip")
    (folder / "photos").mkdir()
    names = {number: f"{number:06d}.png" for number in range(1, len(PHOTOS) + 1)}
    for name, photo in zip(names.values(), PHOTOS, strict=True):
        photo.save(folder / "photos" / name)
    captions = {number: [caption] for number, caption in zip(names, CAPTIONS, strict=True)}
    file = write_coco_file(folder / "photos" / "captions.json", names, captions)
    words = ["extract", "--images", file, "--backbone", folder / "clip", "--out-features", -2, "--split", "train"]
    words += ["--dtype", "float32", "--num-workers", 0, "--output", folder / "features"]
    assert main(list(map(str, words))) == 0
    assert train(folder, folder / "run", f"features:{folder / 'features'}") == 0
    return folder


def test_features_are_the_states_of_the_chosen_layer(journey, tmp_path):
    clip = write_clip(tmp_path)
    [row] = [row for row in rows_of(journey / "features") if row["image_id"] == 3]
    photo = np.asarray(PHOTOS[2].resize((32, 32), resample=3), dtype=np.float32) / 255
    mean, deviation = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    pixels = torch.tensor((photo - np.float32(mean)) / np.float32(deviation)).movedim(-1, 0)[None]
    expected = clip.vision_model(pixels, output_hidden_states=True).hidden_states[-2][0, 1:]
    torch.testing.assert_close(torch.as_tensor(row["visual_features"]), expected, atol=1e-4, rtol=1e-4)
    assert np.asarray(row["visual_boxes"][5]).tolist() == [0.25, 0.25, 0.5, 0.5]


def test_the_attached_encoder_captions_photos_as_their_features(journey, tmp_path, capsys):
    words = ["attach-vision", "--model", journey / "run", "--backbone", journey / "clip", "--output"]
    assert "configuration" in fails(capsys, *words, tmp_path / "last")
    prints(capsys, *words, tmp_path / "captioner", "--out-features", -2)
    data = ["--data", f"features:{journey / 'features'}", "--split", "train"]
    of_features = prints(capsys, "caption", "--model", journey / "run", *data)
    of_photos = prints(capsys, "caption", "--model", tmp_path / "captioner", journey / "photos")
    captions = [[line.split("\t")[1] for line in text.splitlines()] for text in (of_features, of_photos)]
    assert captions[0] == captions[1] and len(captions[0]) == len(PHOTOS)
    prints(
        capsys, "extract", "--images", journey / "photos" / "captions.json", "--backbone", tmp_path / "captioner",
        "--split", "train", "--dtype", "float32", "--num-workers", 0, "--output", tmp_path / "features",
    )  # fmt: skip
    again, first = (rows_of(folder / "features") for folder in (tmp_path, journey))
    assert [row["image_id"] for row in again] == [row["image_id"] for row in first]
    for row, other in zip(again, first, strict=True):
        np.testing.assert_allclose(row["visual_features"], other["visual_features"], atol=1e-5)


@each_row("frozen", [True, False])
def test_a_captioner_is_trained_from_pixels(journey, tmp_path, frozen):
    vision = {"pretrained": str(journey / "clip"), "out_features": [-2], "frozen": frozen}
    training = {} if frozen else {"vision_learning_rate": 0.001}
    spec = "scenes:size=8,seed=3,images=true,image_size=40"
    assert train(tmp_path, tmp_path / "run", spec, {"vision_config": vision}, training=training) == 0
    model, processor = load_captioner(tmp_path / "run")
    assert processor.image_processor.size["height"] == 32 and model.config.vision_config.out_features == ["stage1"]
    before = load_file(journey / "clip" / "model.safetensors")
    after = model.model.vision.backbone.state_dict()
    unchanged = {name for name in after if torch.equal(after[name], before[f"vision_model.{name}"])}
    of_the_last_layer = {name for name in after if "layers.1." in name}  # of no use to the layer before it
    assert unchanged == (set(after) if frozen else of_the_last_layer)

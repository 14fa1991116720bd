"""Settings beside the weights of a checkpoint: wrong types and absurd sizes are named."""

import json

import pytest

from hf_ngsan.extraction import ExtractionError, load_vision
from hf_ngsan.loading.models import ModelFolderError, load_captioner
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor

from ..models.tiny import tiny_captioner, tiny_processor

BACKBONE = {"model_type": "ngsan_vgg", "hidden_sizes": [4, 6], "depths": [1, 1]}


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    model, processor = (
        tiny_captioner(vision_config={"backbone_config": BACKBONE}, visual_feature_size=6),
        tiny_processor(),
    )
    processor.image_processor = CaptioningImageProcessor(size={"height": 16, "width": 16})
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    model.base_model.vision.backbone.save_pretrained(tmp_path / "backbone")
    processor.image_processor.save_pretrained(tmp_path / "backbone")
    return folder


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_beams", 10**6),
        ("max_new_tokens", 10**9),
        ("num_beams", "3"),
        ("num_return_sequences", -1),
        ("decoder_start_token_id", -1),
        ("decoder_start_token_id", {}),
        ("eos_token_id", [2, 10**6]),
        ("length_penalty", "x"),
        ("use_cache", 3),
        ("suppress_tokens", [None]),
    ],
)
def test_a_setting_of_generation_that_cannot_be_used(photos, name, value):
    file = photos / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    with pytest.raises(ModelFolderError, match=name) as error:
        load_captioner(photos)
    assert str(photos) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("size", {"height": 10**6, "width": 10**6}),
        ("size", {"height": "a", "width": 3}),
        ("size", {"height": 4096, "width": 2048}),
        ("size", {"shortest_edge": 4096}),
        ("image_mean", [float("nan")] * 3),
        ("image_std", "x"),
        ("rescale_factor", None),
        ("rescale_factor", {}),
    ],
)
def test_settings_of_an_image_processor_that_cannot_be_used(photos, name, value):
    file = photos / "processor_config.json"
    settings = json.loads(file.read_text())
    settings["image_processor"][name] = value
    file.write_text(json.dumps(settings))
    with pytest.raises(ModelFolderError, match="photos") as error:
        load_captioner(photos)
    assert "\n" not in str(error.value)
    file = photos.parent / "backbone" / "preprocessor_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    with pytest.raises((ExtractionError, ValueError), match="backbone"):
        load_vision(photos.parent / "backbone")


def test_special_words_outside_the_vocabulary(photos):
    file = photos / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "decoder_start_token_id": 10**6}))
    with pytest.raises(ModelFolderError, match="decoder_start_token_id"):
        load_captioner(photos)

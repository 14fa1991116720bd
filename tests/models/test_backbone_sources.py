"""Vision encoders with backbones and detection models of transformers: sizes, checkpoints, missing folders."""

import json

import pytest
import torch
from transformers import RTDetrForObjectDetection, YolosConfig, YolosForObjectDetection
from transformers.models.auto.modeling_auto import MODEL_FOR_BACKBONE_MAPPING_NAMES

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration, VisionConfig, VisionModel
from tests.models.test_modeling_vision import detector_config, make_vision
from tests.models.tiny import pretrained_vision
from tests.tables import each_row

ONE_LAYER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
YOLOS = {"intermediate_size": 16, "image_size": [64, 64], "num_detection_tokens": 9}
NEEDS_MORE = {"dinat": "natten", "timm_backbone": "timm"}


@each_row("model_type", sorted(MODEL_FOR_BACKBONE_MAPPING_NAMES))
def test_every_backbone_of_transformers_tells_its_width(model_type):
    try:
        config = VisionConfig(backbone_config={"model_type": model_type})
    except ImportError as error:
        assert f"requires the {NEEDS_MORE[model_type]} library" in str(error)
        return
    with torch.device("meta"):
        assert VisionModel(config).backbone.channels == [config.feature_size]


@each_row(
    ("model", "kind"),
    [
        (lambda: make_vision().backbone, "grid"),
        (lambda: YolosForObjectDetection(YolosConfig(**ONE_LAYER, **YOLOS)), "regions"),
        (lambda: RTDetrForObjectDetection(detector_config()), "regions"),
    ],
)
def test_the_kind_follows_from_the_model_whatever_head_its_file_names(model, kind, tmp_path):
    model().save_pretrained(tmp_path)
    assert VisionConfig(pretrained=str(tmp_path)).kind == kind
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "architectures": None}))
    assert VisionConfig(pretrained=str(tmp_path)).kind == kind


def test_a_source_that_is_no_backbone_is_refused(tmp_path):
    make_vision().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"^{tmp_path} is .*'ngsan_vision'"):
        pretrained_vision(tmp_path)
    with pytest.raises(OSError, match="nowhere/at_all"):
        NGSANConfig(vision_config={"pretrained": "nowhere/at_all"})


# --- named backbones whose weights are not saved ---


@pytest.fixture
def named(tmp_path):
    make_vision().backbone.save_pretrained(tmp_path / "backbone")
    return pretrained_vision(tmp_path / "backbone", save_frozen_weights=False)


def test_a_backbone_that_is_gone_is_named(named, tmp_path):
    config = NGSANConfig(vocab_size=9, hidden_size=8, num_attention_heads=2, vision_config=named.config.to_dict())
    NGSANForConditionalGeneration(config).save_pretrained(tmp_path / "captioner")
    (tmp_path / "backbone").rename(tmp_path / "elsewhere")
    for load in (
        lambda: NGSANForConditionalGeneration.from_pretrained(tmp_path / "captioner"),
        lambda: NGSANForConditionalGeneration(config),
    ):
        with pytest.raises(OSError, match=f"{tmp_path}/backbone"):
            load()

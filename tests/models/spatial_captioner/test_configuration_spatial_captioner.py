"""Configuration of the spatial captioner: transformers' common tests, the paper's values, what is refused."""

import unittest

import pytest

from hf_ngsan.models.configuration_spatial_captioner import SpatialCaptionerConfig
from tests.models.spatial_captioner.tiny import VISION, tiny_config
from tests.transformers_suite import MISSING, import_suite, is_available


@pytest.mark.skipif(not is_available(), reason=MISSING)
class SpatialCaptionerConfigTest(unittest.TestCase):
    def run_common_tests(self, **fields):
        tester = import_suite("test_configuration_common").ConfigTester
        tester(self, config_class=SpatialCaptionerConfig, **fields).run_common_tests()

    def test_config(self):
        self.run_common_tests(hidden_size=32)

    def test_config_of_a_captioner_without_vision(self):
        self.run_common_tests(vision_config=None, visual_feature_size=1024, decoder_layers=1)


WRONG = [
    ({"attention_temperature": "length"}, "attention_temperature is 'length'.*'key_length', 'head_dim'"),
    ({"hidden_size": 30}, r"hidden_size \(30\).*num_attention_heads \(4\)"),
    ({"hidden_size": 33, "num_attention_heads": 3}, r"hidden_size \(33\) must be even"),
    ({"encoder_layers": 0}, "encoder_layers is 0"),
    ({"decoder_layers": 0}, "decoder_layers is 0"),
    ({"visual_feature_size": 0}, "visual_feature_size is 0"),
    ({"visual_feature_size": 5, "vision_config": VISION}, "visual_feature_size is 5.* 12"),
    ({"vision_config": {"backbone_config": {"depths": [1]}}}, "backbone_config"),
    ({"intermediate_size": -1}, "intermediate_size is -1"),
    ({"attention_bias": "no"}, "attention_bias"),
    ({"dropout": 1.5}, "dropout is 1.5"),
    ({"attention_dropout": -1}, "attention_dropout is -1"),
    ({"residual_dropout": 2}, "residual_dropout is 2"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[str(fields) for fields, _ in WRONG])
def test_wrong_values_are_refused_with_the_name_of_the_field(fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        tiny_config(**fields)
    assert "\n" not in str(caught.value)


def test_defaults_are_the_paper():
    config = SpatialCaptionerConfig()
    assert (config.hidden_size, config.num_attention_heads, config.intermediate_size) == (512, 8, 1024)
    assert (config.encoder_layers, config.decoder_layers, config.num_hidden_layers) == (2, 4, 4)
    assert (config.dropout, config.attention_dropout, config.residual_dropout) == (0.1, 0.1, 0.0)
    assert (config.attention_temperature, config.attention_bias) == ("key_length", False)
    vision = config.vision_config
    assert (vision.kind, vision.frozen, vision.grid_size) == ("grid", True, None)
    assert vision.backbone_config.model_type == "ngsan_vgg"
    assert vision.backbone_config.depths == [1, 1, 2, 2, 2]
    assert vision.feature_size == config.visual_feature_size == 512


def test_the_feature_dimension_is_that_of_the_vision_encoder():
    assert tiny_config(vision_config=VISION, visual_feature_size=None).visual_feature_size == 12
    assert SpatialCaptionerConfig(vision_config=None).visual_feature_size == 512


def test_two_configurations_share_no_vision_encoder():
    first, second = SpatialCaptionerConfig(), SpatialCaptionerConfig()
    first.vision_config.backbone_config.hidden_sizes.append(7)
    assert second.vision_config.backbone_config.hidden_sizes[-1] == 512


@pytest.mark.parametrize("vision", [None, VISION], ids=["features", "pixels"])
def test_configuration_survives_saving(vision, tmp_path):
    config = tiny_config(vision_config=vision, attention_temperature="head_dim", attention_bias=True, dropout=0)
    config.save_pretrained(tmp_path)
    loaded = SpatialCaptionerConfig.from_pretrained(tmp_path)
    assert loaded.to_dict() == config.to_dict()
    assert (loaded.vision_config is None) == (vision is None)

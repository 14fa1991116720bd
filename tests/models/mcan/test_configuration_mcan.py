"""Configurations of MCAN: transformers' common tests, the released sizes, what is refused."""

import unittest
from types import SimpleNamespace

import pytest

from hf_ngsan.models.configuration_mcan import MCANConfig
from tests.models.mcan.tiny import ANSWERS, VISION, tiny_config
from tests.transformers_suite import MISSING, import_suite, is_available


@pytest.mark.skipif(not is_available(), reason=MISSING)
class MCANConfigTest(unittest.TestCase):
    model_tester = SimpleNamespace(get_config=tiny_config)

    def test_config(self):
        tester = import_suite("test_configuration_common").ConfigTester
        properties = ["hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size"]
        tester(
            self, config_class=MCANConfig, has_text_modality=False, common_properties=properties, hidden_size=32
        ).run_common_tests()


def test_presets_are_those_of_the_release():
    small, large = MCANConfig.small(geometric_bias=["query"]), MCANConfig.large(num_labels=9)
    assert (small.hidden_size, small.intermediate_size, small.pooled_size) == (512, 2048, 1024)
    assert (large.hidden_size, large.intermediate_size, large.pooled_size) == (1024, 4096, 2048)
    assert small.geometric_bias == ["query"] and large.num_labels == 9 and not large.needs_boxes
    for config in (small, large):
        assert (config.num_hidden_layers, config.num_attention_heads, config.num_glimpses) == (6, 8, 1)
        assert (config.word_embedding_size, config.reduction_hidden_size, config.dropout) == (300, 512, 0.1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 18}, r"hidden_size \(18\).*num_attention_heads \(4\)"),
        ({"num_glimpses": 0}, "num_glimpses is 0"),
        ({"pooled_size": -1}, "pooled_size is -1"),
        ({"geometric_bias": ["querry"]}, "geometric_bias is 'querry'.*'query'"),
        ({"geometric_bias": ["key", "key"]}, "geometric_bias names 'key' twice"),
        ({"geometry_features": "both"}, "geometry_features is 'both'"),
        ({"loss_reduction": "max"}, "loss_reduction is 'max'"),
        ({"dropout": 2}, "dropout is 2"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder is False"),
        ({"visual_feature_size": 5, "vision_config": VISION}, "visual_feature_size is 5.* 12"),
    ],
    ids=str,
)
def test_wrong_values_are_refused_with_the_name_of_the_field(fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        tiny_config(**fields)
    assert "\n" not in str(caught.value)


def test_configuration_survives_saving_with_its_answers(tmp_path):
    config = tiny_config(geometric_bias=["content"], vision_config=VISION, visual_feature_size=None)
    config.save_pretrained(tmp_path)
    loaded = MCANConfig.from_pretrained(tmp_path)
    assert loaded.to_dict() == config.to_dict()
    assert loaded.id2label == dict(enumerate(ANSWERS)) and loaded.visual_feature_size == 12

"""Configurations of the dual encoder: transformers' common tests, the paper's values, what is refused."""

import unittest
from types import SimpleNamespace

import pytest

from hf_ngsan.models.configuration_mhsan import MHSANConfig, MHSANTextConfig
from tests.models.mhsan.tiny import BERT, TEXT, VISION, tiny_config
from tests.transformers_suite import MISSING, import_suite, is_available


@pytest.mark.skipif(not is_available(), reason=MISSING)
class MHSANConfigTest(unittest.TestCase):
    model_tester = SimpleNamespace(get_config=tiny_config)

    def run_common_tests(self, config_class, **fields):
        tester = import_suite("test_configuration_common").ConfigTester
        tester(self, config_class=config_class, has_text_modality=False, **fields).run_common_tests()

    def test_config(self):
        self.run_common_tests(MHSANConfig, common_properties=["projection_dim", "hidden_size"], hidden_size=36)

    def test_text_config(self):
        properties = ["vocab_size", "hidden_size", "num_hidden_layers"]
        self.run_common_tests(MHSANTextConfig, common_properties=properties, hidden_size=36)


WRONG = [
    ({"loss": "softest"}, "loss is 'softest'.*'hardest', 'all', 'info_nce'"),
    ({"loss_reduction": "max"}, "loss_reduction is 'max'"),
    ({"num_image_heads": -1}, "num_image_heads is -1"),
    ({"num_text_heads": -2}, "num_text_heads is -2"),
    ({"projection_dim": 0}, "projection_dim is 0"),
    ({"hardest_negatives": 0}, "hardest_negatives is 0"),
    ({"temperature": 0}, "temperature is 0"),
    ({"margin": float("nan")}, "margin is nan"),
    ({"dropout": 1.5}, "dropout is 1.5"),
    ({"visual_feature_size": 5, "vision_config": VISION}, "visual_feature_size is 5.* 12"),
    ({"vocab_size": 9}, "vocab_size.*text_config"),
    ({"text": {"hidden_size": 15, "bidirectional": True}}, r"hidden_size \(15\) must be even"),
    ({"text": {"activation": "gelu"}}, "activation is 'gelu'.*'relu'"),
    ({"text": {"num_layers": 3}}, "'num_layers'.*num_hidden_layers"),
    ({"text": {"model_type": "no_such_type"}}, "'no_such_type'"),
    ({"text_config": None, "text_pretrained": "no/such-folder"}, "text_pretrained is 'no/such-folder'.*all-minilm"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[str(fields) for fields, _ in WRONG])
def test_wrong_values_are_refused_with_the_name_of_the_field(fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        tiny_config(**fields)
    assert "\n" not in str(caught.value)


def test_defaults_are_the_paper():
    """Section 3.5."""
    config = MHSANConfig()
    assert (config.hidden_size, config.projection_dim, config.attention_hidden_size) == (2400, 2400, 350)
    assert (config.num_image_heads, config.num_text_heads, config.dropout) == (10, 10, 0.5)
    assert (config.loss, config.margin, config.loss_reduction) == ("hardest", 0.2, "mean")
    assert (config.diversity_weight, config.squared_diversity) == (0.1, True)
    text, backbone = config.text_config, config.vision_config.backbone_config
    assert (text.word_embedding_size, text.hidden_size, text.num_hidden_layers) == (620, 2400, 4)
    assert (text.activation, text.dropout, text.input_dropout, text.bidirectional) == ("tanh", 0.25, 0.25, False)
    assert (backbone.model_type, backbone.depths, config.visual_feature_size) == ("resnet", [3, 8, 36, 3], 2048)


@pytest.mark.parametrize("changes", [{}, {"vision_config": VISION}, {"text_config": BERT}], ids=str)
def test_configuration_survives_saving(changes, tmp_path):
    config = tiny_config(margin=0.3, **changes)
    config.save_pretrained(tmp_path)
    loaded = MHSANConfig.from_pretrained(tmp_path)
    assert loaded.to_dict() == config.to_dict()
    assert type(loaded.text_config) is type(config.text_config)
    assert loaded.vocab_size == TEXT["vocab_size"]

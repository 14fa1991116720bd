"""Configuration of RSTNet: transformers' common tests, the paper, the release, what is refused."""

import unittest

import pytest

from hf_ngsan.models.configuration_rstnet import RELEASE, RSTNetConfig
from tests.models.rstnet.tiny import TEXT_ENCODER, VOCAB_SIZE, tiny_config, tiny_language_model
from tests.transformers_suite import MISSING, import_suite, is_available


@pytest.mark.skipif(not is_available(), reason=MISSING)
class RSTNetConfigTest(unittest.TestCase):
    def test_config(self):
        tester = import_suite("test_configuration_common").ConfigTester
        tester(self, config_class=RSTNetConfig, hidden_size=32).run_common_tests()


def test_defaults_are_the_paper():
    config = RSTNetConfig()
    assert (config.hidden_size, config.num_attention_heads, config.intermediate_size) == (512, 8, 2048)
    assert (config.encoder_layers, config.plain_decoder_layers, config.num_hidden_layers) == (3, 3, 4)
    assert (config.vocab_size, config.visual_feature_size, config.dropout) == (10201, 2048, 0.1)
    assert (config.geometry_fusion, config.geometry_embedding, config.grid_size_offset) == ("additive", "linear", 1)
    assert (config.grid_position_embedding, config.double_residual) == (False, False)
    assert (config.language_attention, config.language_tokenization) == ("causal", "word_pieces")
    assert config.language_signal_projection == "shared"
    bert = config.language_model_config.text_encoder_config
    assert (bert.model_type, bert.num_hidden_layers, bert.hidden_size, bert.is_decoder) == ("bert", 12, 768, True)


def test_one_preset_sets_every_switch_of_the_release():
    config = RSTNetConfig.from_release(vocab_size=100, hidden_size=64)
    assert all(getattr(config, name) == value for name, value in RELEASE.items())
    language_model = config.language_model_config
    assert (language_model.language_attention, language_model.language_tokenization) == ("bidirectional", "caption_ids")
    assert (language_model.double_residual, language_model.position_embedding) == (True, "table")
    assert (language_model.vocab_size, language_model.hidden_size, language_model.pad_token_id) == (100, 64, 1)
    assert not language_model.text_encoder_config.is_decoder


def test_without_adaptive_attention_there_is_no_language_model():
    config = RSTNetConfig(adaptive_attention=False)
    assert config.language_model_config is None
    assert config.num_hidden_layers == 3


@pytest.mark.parametrize("release", [False, True])
def test_configuration_survives_saving(release, tmp_path):
    config = tiny_config(release=release, dropout=0)
    config.save_pretrained(tmp_path)
    assert RSTNetConfig.from_pretrained(tmp_path).to_dict() == config.to_dict()


def test_configuration_of_a_trained_language_model_is_taken(tmp_path):
    tiny_language_model().save_pretrained(tmp_path)
    fields = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "num_attention_heads": 4}
    config = RSTNetConfig(pretrained_language_model=str(tmp_path), **fields)
    assert config.language_model_config.text_encoder_config.hidden_size == TEXT_ENCODER["hidden_size"]
    with pytest.raises(ValueError, match=f"vocab_size is 10201.* {VOCAB_SIZE}"):
        RSTNetConfig(pretrained_language_model=str(tmp_path), hidden_size=32)
    with pytest.raises(ValueError, match=r"hidden_size is 64.* 32"):
        RSTNetConfig(pretrained_language_model=str(tmp_path), **{**fields, "hidden_size": 64})


WRONG = [
    ({"geometry_fusion": "product"}, "geometry_fusion"),
    ({"geometry_embedding": "cubic"}, "geometry_embedding"),
    ({"geometry_embedding": "sinusoidal", "geometry_hidden_size": 12}, "geometry_hidden_size"),
    ({"grid_size_offset": 2}, "grid_size_offset"),
    ({"grid_size": [7]}, "grid_size"),
    ({"grid_size": [7, 0]}, "grid_size"),
    ({"position_embedding": "learned"}, "position_embedding"),
    ({"finished_beams": "gone"}, "finished_beams"),
    ({"language_signal_projection": "none"}, "language_signal_projection"),
    ({"language_attention": "sideways"}, "language_attention"),
    ({"encoder_layers": 0}, "encoder_layers"),
    ({"plain_decoder_layers": 0}, "plain_decoder_layers"),
    ({"grid_position_embedding": True, "hidden_size": 30, "num_attention_heads": 5}, "grid_position_embedding"),
    ({"language_model_config": {"text_encoder_config": TEXT_ENCODER, "vocab_size": 9}}, "vocab_size is 24.* 9"),
    ({"language_model_config": {"text_encoder_config": TEXT_ENCODER, "hidden_size": 64}}, "hidden_size is 32.* 64"),
    ({"language_tokenization": "caption_ids", "vocab_size": 41}, "40 embeddings .* 41"),
    ({"pretrained_language_model": "no/such/folder", "language_model_config": None}, "pretrained_language_model"),
    ({"adaptive_attention": False, "pretrained_language_model": "folder"}, "pretrained_language_model"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[str(fields) for fields, _ in WRONG])
def test_wrong_values_are_refused_with_the_name_of_the_field(fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        tiny_config(**fields)
    assert "\n" not in str(caught.value)


def test_two_opinions_of_the_language_model_are_named():
    language_model = tiny_language_model().config
    with pytest.raises(ValueError, match=r"language_attention is 'bidirectional'.* 'causal'"):
        tiny_config(language_model_config=language_model, language_attention="bidirectional")

"""What a configuration refuses, and that the message names the field."""

import pytest
import torch
from transformers import AutoConfig

from hf_ngsan.models.configuration_ngsan import NGSANConfig
from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration
from tests.models.tiny import tiny_config

WRONG = [
    ({"query_norm": "group"}, "query_norm is 'group'.*None, 'instance', 'layer', 'batch'"),
    ({"key_norm": "none"}, "key_norm is 'none'"),
    ({"geometric_bias": ["query", "keys"]}, "geometric_bias.*'keys'.*'content', 'query', 'key'"),
    ({"geometric_bias": "query"}, "geometric_bias"),
    ({"geometric_bias": None}, "geometric_bias"),
    ({"geometric_bias": ["query", "query"]}, "geometric_bias names 'query' twice"),
    ({"geometry_features": "polar"}, "geometry_features is 'polar'.*'unsigned', 'signed'"),
    ({"hidden_size": 30}, r"hidden_size \(30\).*num_attention_heads \(4\)"),
    ({"hidden_size": 36, "absolute_geometry": True}, "absolute_geometry.*multiple of 8.*36"),
    ({"hidden_size": 33, "num_attention_heads": 3}, r"hidden_size \(33\) must be even"),
    ({"num_attention_heads": 0}, "num_attention_heads"),
    ({"num_hidden_layers": 0}, "num_hidden_layers"),
    ({"visual_feature_size": -1}, "visual_feature_size"),
    ({"geometry_hidden_size": 0}, "geometry_hidden_size"),
    ({"intermediate_size": 0}, "intermediate_size"),
    ({"vocab_size": 0}, "vocab_size"),
    ({"hidden_size": "32"}, "hidden_size"),
    ({"norm_affine": "yes"}, "norm_affine"),
    ({"dropout": 1.5}, "dropout"),
    ({"dropout": -0.1}, "dropout"),
    ({"attention_dropout": 2}, "attention_dropout"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[str(fields) for fields, _ in WRONG])
def test_wrong_values_are_refused_with_the_name_of_the_field(fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        tiny_config(**fields)
    assert "\n" not in str(caught.value)


def test_defaults_are_the_ng_san_of_the_paper():
    config = NGSANConfig()
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (512, 4, 8)
    assert (config.intermediate_size, config.dropout, config.visual_feature_size) == (2048, 0.1, 2048)
    assert (config.query_norm, config.key_norm, config.norm_affine) == ("instance", None, False)
    assert (config.geometric_bias, config.geometry_hidden_size) == (["query"], 64)
    assert (config.geometry_features, config.absolute_geometry) == ("unsigned", False)
    assert config.vocab_size == 9487 + 4


def test_two_configurations_share_no_list():
    first, second = NGSANConfig(), NGSANConfig()
    first.geometric_bias.append("key")
    assert second.geometric_bias == ["query"]
    assert NGSANConfig().geometric_bias == ["query"]


def test_configuration_survives_saving(tmp_path):
    config = tiny_config(query_norm=None, key_norm="layer", geometric_bias=["content", "key"], dropout=0)
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is NGSANConfig
    assert loaded.to_diff_dict() == config.to_diff_dict()
    assert not hasattr(loaded, "auto_map")


@pytest.mark.parametrize("rate", [0, 1, 0.5])
def test_any_dropout_rate_trains(rate):
    model = NGSANForConditionalGeneration(tiny_config(geometric_bias=[], dropout=rate, attention_dropout=rate)).train()
    assert model(torch.randn(2, 3, 12), labels=torch.tensor([[5, 2], [6, 2]])).loss.isfinite()

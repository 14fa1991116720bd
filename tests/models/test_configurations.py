"""Configurations of every architecture: transformers' common tests, the papers' values, errors."""

import unittest
from types import SimpleNamespace

import pytest
from transformers import AutoConfig

from hf_ngsan.models.configuration_hub import ConfigWithVision
from hf_ngsan.models.configuration_mcan import MCANConfig
from hf_ngsan.models.configuration_mhsan import MHSANConfig
from hf_ngsan.models.configuration_ngsan import NGSANConfig
from hf_ngsan.models.configuration_nsa_transformer import NSATransformerConfig
from hf_ngsan.models.configuration_rstnet import RSTNetConfig, RSTNetLanguageModelConfig
from hf_ngsan.models.configuration_spatial_captioner import SpatialCaptionerConfig
from hf_ngsan.models.configuration_vision import VisionConfig
from hf_ngsan.models.modeling_mhsan_text import MHSANTextConfig
from tests.models import tiny
from tests.models.mcan import tiny as mcan
from tests.models.mhsan import tiny as mhsan
from tests.models.nsa_transformer.tiny import SIZES
from tests.models.rstnet import tiny as rstnet
from tests.models.rstnet.tiny import TEXT_ENCODER
from tests.models.spatial_captioner import tiny as spatial_captioner
from tests.tables import each_row
from tests.transformers_suite import MISSING, import_suite, is_available

VISION = mhsan.VISION
MAKE = {
    "ngsan": tiny.tiny_config,
    "rstnet": rstnet.tiny_config,
    "rstnet_language_model": lambda **fields: rstnet.tiny_language_model(**fields).config,
    "spatial_captioner": spatial_captioner.tiny_config,
    "nsa_transformer": lambda **fields: NSATransformerConfig(**{**SIZES, **fields}),
    "mcan": mcan.tiny_config,
    "mhsan": mhsan.tiny_config,
}
NO_TEXT = {"has_text_modality": False, "hidden_size": 36}
COMMON = [
    (NGSANConfig, {"hidden_size": 32}),
    (NGSANConfig, {"visual_feature_size": 1024, "num_hidden_layers": 1, "geometric_bias": []}),
    (RSTNetConfig, {"hidden_size": 32}),
    (RSTNetLanguageModelConfig, {"hidden_size": 32}),
    (SpatialCaptionerConfig, {"hidden_size": 32}),
    (SpatialCaptionerConfig, {"vision_config": None, "visual_feature_size": 1024, "decoder_layers": 1}),
    (NSATransformerConfig, {"hidden_size": 32}),
    (
        MCANConfig,
        {**NO_TEXT, "hidden_size": 32, "common_properties": ["hidden_size", "num_attention_heads", "vocab_size"]},
    ),
    (MHSANConfig, {**NO_TEXT, "common_properties": ["projection_dim", "hidden_size"]}),
    (MHSANTextConfig, {**NO_TEXT, "common_properties": ["vocab_size", "hidden_size", "num_hidden_layers"]}),
]


@pytest.mark.skipif(not is_available(), reason=MISSING)
@each_row(("config_class", "fields"), COMMON)
def test_the_common_tests(config_class, fields, monkeypatch):
    # unchanged if a model has such a part
    monkeypatch.setattr(ConfigWithVision.sub_configs_defaults["vision_config"], "config_class", VisionConfig)
    monkeypatch.setattr(MHSANConfig.sub_configs_defaults["text_config"], "config_class", MHSANTextConfig)
    case = unittest.TestCase()
    case.model_tester = SimpleNamespace(get_config=MAKE.get(config_class.model_type))
    import_suite("test_configuration_common").ConfigTester(case, config_class=config_class, **fields).run_common_tests()


def test_parts_are_those_of_the_papers():
    """`tests/tasks/defaults.yaml` has the other defaults."""
    text, backbone = (
        RSTNetConfig().language_model_config.text_encoder_config,
        MHSANConfig().vision_config.backbone_config,
    )
    assert (text.model_type, text.num_hidden_layers, text.hidden_size, text.is_decoder) == ("bert", 12, 768, True)
    assert (backbone.model_type, backbone.depths) == ("resnet", [3, 8, 36, 3])


@each_row(
    ("name", "fields"),
    [
        ("ngsan", {"query_norm": None, "key_norm": "layer", "geometric_bias": ["content", "key"], "dropout": 0}),
        ("rstnet", {"dropout": 0, "release": True}),
        ("spatial_captioner", {"attention_temperature": "head_dim", "attention_bias": True, "dropout": 0}),
        ("spatial_captioner", {"vision_config": VISION, "visual_feature_size": None}),
        ("mcan", {"geometric_bias": ["content"], "vision_config": VISION, "visual_feature_size": None}),
        ("mhsan", {"vision_config": VISION}),
        ("mhsan", {"text_config": mhsan.BERT}),
    ],
)
def test_a_configuration_survives_saving(name, fields, tmp_path):
    config = MAKE[name](**fields)
    config.save_pretrained(tmp_path)
    loaded = type(config).from_pretrained(tmp_path)
    assert type(AutoConfig.from_pretrained(tmp_path)) is type(config)
    assert loaded.to_dict() == config.to_dict()
    assert not hasattr(loaded, "auto_map")
    for part in ("text_config", "vision_config"):
        assert type(getattr(loaded, part, None)) is type(getattr(config, part, None))
    if name == "mcan":
        assert loaded.id2label == dict(enumerate(mcan.ANSWERS)) and loaded.visual_feature_size == 12


WRONG = {
    "ngsan": [
        ({"query_norm": "group"}, "query_norm .*'group'.*'batch'"),
        ({"geometric_bias": ["query", "keys"]}, "geometric_bias.*'keys'.*'content'"),
        ({"geometry_features": "polar"}, "geometry_features .*'polar'"),
        ({"hidden_size": 30}, r"hidden_size \(30\).*num_attention_heads \(4\)"),
        ({"hiden_size": 32}, "'hiden_size'.* hidden_size"),
        ({"vision_config": {"gridsize": [2, 2]}}, "'gridsize'.* grid_size"),
        ({"vision_config": {"save_frozen_weights": False}}, "save_frozen_weights"),
        ({"vision_config": {"backbone_config": {"model_type": "ngsan_vgg", "depths": [1]}}}, "depths"),
    ],
    "rstnet": [
        ({"geometry_fusion": "product"}, "geometry_fusion"),
        ({"language_model_config": {"text_encoder_config": TEXT_ENCODER, "vocab_size": 9}}, "vocab_size .*24.* 9"),
        ({"language_tokenization": "caption_ids", "vocab_size": 41}, "40 .* 41"),
        (
            {"language_tokenization": "caption_ids", "language_model_config": rstnet.tiny_language_model().config},
            "word_p",
        ),
        ({"adaptive_attention": False, "pretrained_language_model": "folder"}, "pretrained_language_model"),
    ],
    "rstnet_language_model": [({"text_encoder_config": {"model_type": "distilbert"}}, "distilbert")],
    "spatial_captioner": [
        ({"attention_temperature": "length"}, "attention_temperature .*'length'.*'head_dim'"),
        ({"visual_feature_size": 5, "vision_config": VISION}, "visual_feature_size .*5.* 12"),
    ],
    "nsa_transformer": [
        ({"query_norm": "group"}, "query_norm"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
    ],
    "mcan": [({"geometric_bias": ["querry"]}, "geometric_bias .*'querry'")],
    "mhsan": [
        ({"loss": "softest"}, "loss .*'softest'.*'info_nce'"),
        ({"temperature": 0.0}, "temperature"),
        ({"frozen_text_layers": 1}, "frozen_text_layers"),
        ({"save_frozen_weights": False}, "save_frozen_weights"),
    ],
}


@each_row(("name", "fields", "named"), [(name, *case) for name, cases in WRONG.items() for case in cases])
def test_wrong_values_are_refused_with_the_name_of_the_field(name, fields, named):
    with pytest.raises(ValueError, match=named) as caught:
        MAKE[name](**fields)
    assert "\n" not in str(caught.value)

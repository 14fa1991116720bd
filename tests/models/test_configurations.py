"""Configurations of every architecture: transformers' common tests, the papers' values, what is refused."""

import unittest
from types import SimpleNamespace

import pytest
from transformers import AutoConfig

from hf_ngsan.models.configuration_hub import ConfigWithVision
from hf_ngsan.models.configuration_mcan import MCANConfig
from hf_ngsan.models.configuration_mhsan import MHSANConfig
from hf_ngsan.models.configuration_ngsan import NGSANConfig
from hf_ngsan.models.configuration_nsa_transformer import NSATransformerConfig
from hf_ngsan.models.configuration_rstnet import RELEASE, RSTNetConfig, RSTNetLanguageModelConfig
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
    # as they are where a model has such a part
    monkeypatch.setattr(ConfigWithVision.sub_configs_defaults["vision_config"], "config_class", VisionConfig)
    monkeypatch.setattr(MHSANConfig.sub_configs_defaults["text_config"], "config_class", MHSANTextConfig)
    case = unittest.TestCase()
    case.model_tester = SimpleNamespace(get_config=MAKE.get(config_class.model_type))
    import_suite("test_configuration_common").ConfigTester(case, config_class=config_class, **fields).run_common_tests()


def value_of(config, path: str):
    for name in path.split("."):
        config = getattr(config, name)
    return config


@each_row(
    ("config", "values"),
    [
        (
            NGSANConfig,
            {
                **{"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048},
                **{"dropout": 0.1, "visual_feature_size": 2048, "vocab_size": 9487 + 4, "temporal_positions": False},
                **{"query_norm": "instance", "key_norm": None, "norm_affine": False, "geometric_bias": ["query"]},
                **{"geometry_hidden_size": 64, "geometry_features": "unsigned", "absolute_geometry": False},
            },
        ),
        (
            RSTNetConfig,
            {
                **{"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048, "encoder_layers": 3},
                **{"plain_decoder_layers": 3, "num_hidden_layers": 4, "vocab_size": 10201, "dropout": 0.1},
                **{"visual_feature_size": 2048, "geometry_fusion": "additive", "geometry_embedding": "linear"},
                **{"grid_size_offset": 1, "grid_position_embedding": False, "double_residual": False},
                **{"language_attention": "causal", "language_tokenization": "word_pieces"},
                "language_signal_projection": "shared",
                "language_model_config.text_encoder_config.model_type": "bert",
                "language_model_config.text_encoder_config.num_hidden_layers": 12,
                "language_model_config.text_encoder_config.hidden_size": 768,
                "language_model_config.text_encoder_config.is_decoder": True,
            },
        ),
        (
            lambda: RSTNetConfig.from_release(vocab_size=100, hidden_size=64),
            {
                **RELEASE,
                "language_model_config.language_attention": "bidirectional",
                "language_model_config.language_tokenization": "caption_ids",
                "language_model_config.double_residual": True,
                "language_model_config.position_embedding": "table",
                "language_model_config.vocab_size": 100,
                "language_model_config.hidden_size": 64,
                "language_model_config.pad_token_id": 1,
                "language_model_config.text_encoder_config.is_decoder": False,
            },
        ),
        (
            MHSANConfig,  # section 3.5
            {
                **{"hidden_size": 2400, "projection_dim": 2400, "attention_hidden_size": 350, "dropout": 0.5},
                **{"num_image_heads": 10, "num_text_heads": 10, "visual_feature_size": 2048, "loss": "hardest"},
                **{"margin": 0.2, "loss_reduction": "mean", "diversity_weight": 0.1, "squared_diversity": True},
                **{"text_config.word_embedding_size": 620, "text_config.hidden_size": 2400},
                **{"text_config.num_hidden_layers": 4, "text_config.activation": "tanh", "text_config.dropout": 0.25},
                **{"text_config.input_dropout": 0.25, "text_config.bidirectional": False},
                "vision_config.backbone_config.model_type": "resnet",
                "vision_config.backbone_config.depths": [3, 8, 36, 3],
            },
        ),
    ],
)
def test_defaults_are_those_of_the_papers_and_releases(config, values):
    made = config()
    assert {path: value_of(made, path) for path in values} == values


@each_row(
    ("name", "fields"),
    [
        ("ngsan", {"query_norm": None, "key_norm": "layer", "geometric_bias": ["content", "key"], "dropout": 0}),
        ("rstnet", {"dropout": 0}),
        ("rstnet", {"dropout": 0, "release": True}),
        ("spatial_captioner", {"attention_temperature": "head_dim", "attention_bias": True, "dropout": 0}),
        ("spatial_captioner", {"vision_config": VISION, "visual_feature_size": None}),
        ("nsa_transformer", {"query_norm": "layer"}),
        ("mcan", {"geometric_bias": ["content"], "vision_config": VISION, "visual_feature_size": None}),
        ("mhsan", {"margin": 0.3}),
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
        ({"absolute_geometry": True, "hidden_size": 36}, "absolute_geometry"),
        ({"vision_config": {"grid_size": [2]}}, "grid_size"),
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
        ({"position_embedding": "boxes", "hidden_size": 36}, "position_embedding"),
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
        ({"text": {"hidden_size": 15, "bidirectional": True}}, r"hidden_size \(15\)"),
    ],
}


@each_row(("name", "fields", "named"), [(name, *case) for name, cases in WRONG.items() for case in cases])
def test_wrong_values_are_refused_with_the_name_of_the_field(name, fields, named):
    with pytest.raises(ValueError, match=named) as caught:
        MAKE[name](**fields)
    assert "\n" not in str(caught.value)

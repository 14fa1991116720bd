"""Every config in examples/configs is complete, explained, and builds the model of its name."""

import dataclasses
import functools
import re
from pathlib import Path

import pytest
import torch
import yaml

from hf_ngsan.loading.models import load_config
from hf_ngsan.models.configuration_mhsan import MHSANConfig
from hf_ngsan.models.modeling_mhsan import MHSANModel
from hf_ngsan.models.text_encoders import PACKAGES
from hf_ngsan.registry import MODEL_TYPES, model_class
from hf_ngsan.tasks import load_training_config
from hf_ngsan.training.optimizer import learning_rate_at
from tests.guests.tiny import save, tiny
from tests.tables import each_row

CONFIGS = Path(__file__).parents[2] / "examples" / "configs"
FOLDER = CONFIGS / "ngsan"
FILES = sorted(CONFIGS.glob("*/*.yaml"))
SPECIAL_TOKENS = 4


def build(name):
    return build_from(FOLDER / name)


@functools.cache
def build_from(file):
    training_config = load_training_config(file)
    fields = dict(training_config.model)
    vision = fields.get("vision_config")
    if vision and not {"backbone_config", "pretrained"} & vision.keys():  # its backbone is that of init_from
        fields["vision_config"] = {**vision, "backbone_config": {"model_type": "ngsan_vgg"}}
    if "init_from" in fields:
        config = load_config(fields["init_from"])
        auto_class = "AutoModel" if config.model_type == "mhsan" else "AutoModelForImageTextToText"
        with torch.device("meta"):
            return model_class(config.model_type, auto_class)(config)
    if fields["model_type"] == "mhsan":
        return build_dual_encoder(training_config)
    auto_class = "AutoModel"
    if MODEL_TYPES[fields["model_type"]].task == "captioning":
        fields["vocab_size"], auto_class = 9487 + SPECIAL_TOKENS, "AutoModelForImageTextToText"
    config = model_class(fields.pop("model_type"), "AutoConfig")(**fields)
    with torch.device("meta"):
        return model_class(config.model_type, auto_class)(config)


def build_dual_encoder(config):
    if config.model.get("text_pretrained") in PACKAGES:
        pytest.importorskip(PACKAGES[config.model["text_pretrained"]].replace("-", "_"))
    with torch.device("meta"):
        return MHSANModel(MHSANConfig(**config.model, **dataclasses.asdict(config.contrastive)))


@each_row("file", [file for file in FILES if file.parent.name != "guests"])
def test_a_config_loads_and_builds(file):
    model = build(file)
    assert model.config.model_type.startswith(file.parent.name)
    assert model.num_parameters() > 1e5


@each_row("file", [file for file in FILES if file.parent.name == "guests"])
def test_a_config_of_a_model_on_the_hub_is_that_of_a_folder_of_its_kind(file, tmp_path):
    folder = save(tiny(file.stem), tmp_path / file.stem)
    config = load_training_config(file, [f"model.init_from={folder}"])
    assert config.model == {"init_from": str(folder)}
    assert "/" in yaml.safe_load(file.read_text(encoding="utf-8"))["model"]["init_from"]


@each_row(
    ("name", "millions"),
    [
        *[("san_l1", 18.1), ("san_l2", 25.5), ("san", 40.2), ("san_l6", 54.9), ("n_san_l1", 18.1), ("n_san", 40.2)],
        *[("n_san_l6", 54.9), ("san_absolute", 40.2), ("g_san_content", 40.2), ("g_san", 41.5), ("g_san_key", 41.5)],
        ("ngsan", 41.5),
    ],
)
def test_sizes_are_those_of_the_paper(name, millions):
    assert round(build(f"{name}.yaml").num_parameters() / 1e6, 1) == millions


@each_row(
    ("name", "fields"),
    [
        ("san", {"query_norm": None, "geometric_bias": []}),
        ("n_san", {"query_norm": "instance", "key_norm": None, "norm_affine": False, "geometric_bias": []}),
        ("n_san_layer_norm", {"query_norm": "layer", "norm_affine": True, "geometric_bias": []}),
        ("n_san_batch_norm", {"query_norm": "batch", "norm_affine": True, "geometric_bias": []}),
        ("n_san_instance_norm_affine", {"query_norm": "instance", "norm_affine": True, "geometric_bias": []}),
        ("n_san_key", {"query_norm": None, "key_norm": "instance", "geometric_bias": []}),
        ("n_san_query_key", {"query_norm": "instance", "key_norm": "instance", "geometric_bias": []}),
        ("san_absolute", {"query_norm": None, "absolute_geometry": True, "geometric_bias": []}),
        ("g_san_content", {"query_norm": None, "geometric_bias": ["content"]}),
        ("g_san_key", {"query_norm": None, "geometric_bias": ["key"]}),
        ("g_san", {"query_norm": None, "geometric_bias": ["query"]}),
        ("ngsan", {"query_norm": "instance", "geometric_bias": ["query"], "geometry_features": "unsigned"}),
        ("ngsan_signed", {"query_norm": "instance", "geometric_bias": ["query"], "geometry_features": "signed"}),
        ("vatex_transformer", {"query_norm": None, "num_hidden_layers": 1, "visual_feature_size": 1024}),
        ("vatex_n_san", {"query_norm": "instance", "geometric_bias": [], "num_hidden_layers": 1}),
    ],
)
def test_a_config_is_the_row_it_is_named_after(name, fields):
    config = build(f"{name}.yaml").config
    assert {field: getattr(config, field) for field in fields} == fields


def test_the_training_config_of_a_packaged_checkpoint_repeats_its_training():
    checkpoints = sorted((CONFIGS.parents[1] / "checkpoints").glob("*/training_config.yaml"))
    assert checkpoints
    for file in checkpoints:
        assert load_training_config(file).model, file


@each_row("folder", sorted({file.parent for file in FILES}))
def test_the_readme_names_every_config(folder):
    named = set(re.findall(r"`(\w+\.yaml)`", (folder / "README.md").read_text(encoding="utf-8")))
    assert named == {file.name for file in folder.glob("*.yaml")}


@each_row(
    ("name", "fusion", "adaptive", "layers"),
    [("base", None, False, 3), ("ga", "additive", False, 3), ("aa", None, True, 4), ("rstnet", "additive", True, 4)],
)
def test_rstnets_tables_are_its_two_modules(name, fusion, adaptive, layers):
    config = build(CONFIGS / "rstnet" / f"{name}.yaml").config
    actual = (config.geometry_fusion, config.adaptive_attention, config.num_hidden_layers, config.grid_size)
    assert actual == (fusion, adaptive, layers, [7, 7])


def test_rstnet_is_trained_by_eq_29():
    config = load_training_config(CONFIGS / "rstnet" / "rstnet.yaml")
    rates = [learning_rate_at(epoch - 1, 1, config.training) / 1e-4 for epoch in range(1, 16)]
    expected = [0.25, 0.5, 0.75, *[1.0] * 7, *[0.2] * 2, *[0.04] * 3]
    assert rates == pytest.approx(expected)
    critical = config.self_critical
    assert {learning_rate_at(step, 1, critical) for step in (0, 9, 50)} == {5e-6}
    patience = (critical.early_stopping_patience, config.training.early_stopping_patience)
    assert (critical.baseline, *patience) == ("mean", 5, 5)


@each_row(
    ("name", "heads", "diversity_weight"),
    [
        ("mhsan", (10, 10), 0.1),
        ("mhsan_1_head", (1, 1), 0.1),
        ("mhsan_5_heads", (5, 5), 0.1),
        ("no_attention", (0, 0), 0.1),
        *((f"image_{n}_{'head' if n == 1 else 'heads'}", (n, 0), 0.1) for n in (1, 5, 10)),
        *((f"text_{n}_{'head' if n == 1 else 'heads'}", (0, n), 0.1) for n in (1, 5, 10)),
        ("no_diversity", (10, 10), 0.0),
        ("flickr30k", (10, 10), 0.1),
    ],
)
def test_a_config_of_mhsan_is_the_row_it_is_named_after(name, heads, diversity_weight):
    training_config = load_training_config(CONFIGS / "mhsan" / f"{name}.yaml")
    config = MHSANConfig(**training_config.model, **dataclasses.asdict(training_config.contrastive))
    assert (config.num_image_heads, config.num_text_heads, config.diversity_weight) == (*heads, diversity_weight)
    assert (config.projection_dim, config.text_config.bidirectional) == (2400, name == "flickr30k")
    stages = training_config.projection_stage, training_config.text_stage, training_config.image_stage
    assert [(stage.epochs, stage.learning_rate) for stage in stages] == [(4, 5e-3), (15, 5e-4), (40, 5e-5)]

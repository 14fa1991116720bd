"""Absurd sizes in somebody's configuration are refused before they cost memory or time."""

import json
import shutil

import pytest
import torch
from transformers import ResNetBackbone, ResNetConfig

from hf_ngsan.cli import main
from hf_ngsan.extraction import ExtractionError, load_vision
from hf_ngsan.loading.limits import UnusableModelError, refuse_too_large
from hf_ngsan.loading.models import ModelFolderError, load_captioner
from hf_ngsan.models.configuration_hub import MAX_LAYERS, MAX_NUMBER, ConfigurationError
from hf_ngsan.models.configuration_ngsan import NGSANConfig
from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration
from hf_ngsan.models.text_scores import text_scores
from tests.tables import each_row

from ..models.tiny import tiny_captioner, tiny_config, tiny_processor


@pytest.fixture(scope="module")
def captioner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captioner")
    tiny_captioner().save_pretrained(folder)
    tiny_processor().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backbone")
    sizes = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1]}
    ResNetBackbone(ResNetConfig(**sizes)).save_pretrained(folder)
    return folder


def changed(folder, tmp_path, **fields):
    """Returns a copy of a model's folder with other fields in its `config.json`."""
    copy = shutil.copytree(folder, tmp_path / "changed")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **fields}))
    return copy


@each_row(
    "fields",
    [
        {"num_hidden_layers": 10**6},
        {"num_labels": 10**9},
        {"hidden_size": 10**9},
        {"vocab_size": 10**9},
        {"vision_config": {"backbone_config": {"model_type": "ngsan_resnext", "depths": [10**6]}}},
        {"vision_config": {"backbone_config": {"model_type": "resnet", "num_labels": 10**9}}},
    ],
)
def test_a_configuration_with_absurd_numbers(captioner, tmp_path, fields, capsys):
    with pytest.raises(ModelFolderError, match=r"num_hidden_layers|num_labels|hidden_size|vocab_size|depths"):
        load_captioner(changed(captioner, tmp_path, **fields))
    assert main(["caption", "--model", str(tmp_path / "changed"), "--data", "scenes"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_configuration_within_bounds_of_more_parameters_than_there_are_weights(captioner, tmp_path):
    with pytest.raises(ModelFolderError, match="parameters"):
        load_captioner(changed(captioner, tmp_path, vocab_size=MAX_NUMBER))


@each_row("fields", [{"num_labels": 10**9}, {"depths": [10**6, 1]}, {"hidden_sizes": [2**19, 2**20]}])
def test_a_backbone_of_transformers_with_absurd_numbers(backbone, tmp_path, fields):
    assert load_vision(backbone)[0].config.feature_size == 8
    with pytest.raises(ExtractionError, match="changed"):
        load_vision(changed(backbone, tmp_path, **fields))


def test_the_largest_numbers_are_allowed():
    config = NGSANConfig(vocab_size=MAX_NUMBER, num_hidden_layers=MAX_LAYERS, max_position_embeddings=10**9)
    assert config.num_hidden_layers == MAX_LAYERS
    with pytest.raises(ConfigurationError, match="num_hidden_layers"):
        NGSANConfig(num_hidden_layers=MAX_LAYERS + 1)


def test_mappings_within_mappings_without_end():
    fields = {}
    for _ in range(10_000):
        fields = {"vision_config": fields}
    with pytest.raises(ConfigurationError):
        NGSANConfig(**fields)


def test_a_model_larger_than_the_memory():
    config = tiny_config(hidden_size=2**19, intermediate_size=2**20)
    with pytest.raises(UnusableModelError, match="GiB"):
        refuse_too_large(lambda: NGSANForConditionalGeneration(config))


def test_weights_that_are_not_finite(captioner, tmp_path, capsys):
    model = tiny_captioner()
    next(model.parameters()).data.flatten()[3] = float("nan")
    copy = shutil.copytree(captioner, tmp_path / "changed")
    model.save_pretrained(copy)
    with pytest.raises(ModelFolderError, match="are not finite"):
        load_captioner(copy)


def test_scores_that_are_not_finite(captioner):
    model, processor = load_captioner(captioner)
    for weights in model.parameters():
        weights.data *= 1e20
    size = model.config.visual_feature_size
    inputs = {"visual_features": torch.ones(1, 3, size), "visual_boxes": torch.tensor([[[0, 0, 1, 1.0]] * 3])}
    with pytest.raises(RuntimeError, match="not finite"):
        text_scores(model, processor.tokenizer, inputs, torch.tensor([[1, 5, 6, 2]]))

"""Backbones converted from torchvision compute what the architectures say."""

import json

import convert_torchvision_backbone as script
import pytest
import torch
from safetensors.torch import load_file
from state_dicts import ConversionError, save
from transformers import ResNetBackbone

from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_resnext import NGSANResNeXtBackbone
from hf_ngsan.models.modeling_vgg import NGSANVGGBackbone
from tests.conversion.layouts import (
    DEPTHS,
    VGG_11,
    torchvision_resnet_map,
    torchvision_resnet_state_dict,
    vgg_map,
    vgg_state_dict,
)
from tests.tables import each_row

VGG_16 = (64, 64, "pool", 128, 128, "pool", *(256,) * 3, "pool", *(512,) * 3, "pool", *(512,) * 3, "pool")


def assert_same_map(backbone, expected, images):
    with torch.no_grad():
        found = backbone(images).feature_maps[-1]
    assert expected.std() > 0.1, "a map of zeros would show nothing"
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@each_row(("name", "plan"), [("vgg11", VGG_11), ("vgg11_bn", VGG_11), ("vgg16", VGG_16)])
def test_vgg(name, plan):
    weights, images = vgg_state_dict(plan, batch_norm=name.endswith("_bn")), torch.randn(2, 3, 64, 48)
    conversion = script.convert_weights(script.CONFIGURATIONS[name], weights)
    assert_same_map(conversion.model, vgg_map(weights, images, plan), images)
    assert len(conversion.left_out) == 6


@pytest.mark.parametrize(
    ("name", "depth", "groups", "width", "parameters"),
    [
        pytest.param("resnet152", 152, 1, 64, 58_143_808, marks=pytest.mark.slow),
        pytest.param("resnext101_32x8d", 101, 32, 8, 86_742_336, marks=pytest.mark.slow),
        pytest.param("resnext50_32x4d", 50, 32, 4, 22_979_904, marks=pytest.mark.slow),
        ("resnet50", 50, 1, 64, 23_508_032),
    ],
)
def test_resnets(name, depth, groups, width, parameters):
    weights = torchvision_resnet_state_dict(DEPTHS[depth], groups, width)
    conversion = script.convert_weights(script.CONFIGURATIONS[name], weights)
    images = torch.randn(2, 3, 64, 96)
    assert_same_map(conversion.model, torchvision_resnet_map(weights, images, DEPTHS[depth], groups), images)
    assert conversion.model.num_parameters() == parameters
    assert conversion.left_out == ["fc.bias", "fc.weight"]
    assert isinstance(conversion.model, NGSANResNeXtBackbone if "resnext" in name else ResNetBackbone)


def test_checkpoints_that_count_no_batches_are_read():
    conversion = script.convert_weights(
        script.CONFIGURATIONS["resnet50"], torchvision_resnet_state_dict(DEPTHS[50], counted=False)
    )
    counts = {int(value) for name, value in conversion.model.state_dict().items() if name.endswith("batches_tracked")}
    assert counts == {0}


@each_row(
    ("spoil", "message"),
    [
        (
            lambda w: w.pop("features.3.bias"),
            r"lacks weights of the architecture \(1 of 16, features.3.bias among them\)",
        ),
        (
            lambda w: w.update({"features.99.weight": torch.zeros(1)}),
            r"has weights .* \(1, features.99.weight among them\)",
        ),
        (lambda w: w.update({"classifier.9.weight": torch.zeros(1)}), "has weights .*classifier.9.weight"),
        (
            lambda w: w.update({"features.0.weight": torch.zeros(64, 3, 5, 5)}),
            r"features.0.weight has the shape \(64, 3, 5, 5\) instead of \(64, 3, 3, 3\)",
        ),
        (lambda w: w["features.0.bias"].fill_(float("nan")), "features.0.bias has values that are not finite"),
    ],
)
def test_another_checkpoint_is_refused(spoil, message):
    weights = vgg_state_dict()
    spoil(weights)
    with pytest.raises(ConversionError, match=message):
        script.convert_weights(script.CONFIGURATIONS["vgg11"], weights)


def test_one_architecture_is_not_taken_for_another():
    weights = torchvision_resnet_state_dict(DEPTHS[50])
    for taken_for in ("resnet152", "resnext50_32x4d", "vgg11"):
        with pytest.raises(ConversionError, match="weight"):
            script.convert_weights(script.CONFIGURATIONS[taken_for], weights)


@each_row("name", ["vgg11", "resnext50_32x4d"])
def test_the_folder_holds_the_backbone_and_its_preprocessing(name, tmp_path):
    if name == "vgg11":
        weights, model_class = vgg_state_dict(), NGSANVGGBackbone
    else:
        weights, model_class = torchvision_resnet_state_dict(DEPTHS[50], 32, 4), NGSANResNeXtBackbone
    converted = script.convert_weights(script.CONFIGURATIONS[name], weights)
    folder = tmp_path / "backbones" / name
    save(converted, folder)
    assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors", "preprocessor_config.json"}
    assert load_file(folder / "model.safetensors").keys() == converted.model.state_dict().keys()
    assert json.loads((folder / "config.json").read_text())["architectures"] == [model_class.__name__]
    loaded, images = model_class.from_pretrained(folder).eval(), torch.randn(1, 3, 64, 64)
    assert torch.equal(loaded(images).feature_maps[-1], converted.model(images).feature_maps[-1])
    processor = CaptioningImageProcessor.from_pretrained(folder)
    pixels = torch.full((3, 300, 200), 128, dtype=torch.uint8).permute(1, 2, 0).numpy()
    expected = (128 / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    found = processor(pixels, return_tensors="pt").pixel_values
    torch.testing.assert_close(found, expected[None, :, None, None].expand(1, 3, 224, 224))

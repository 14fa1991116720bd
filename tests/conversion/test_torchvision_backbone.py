"""Backbones converted from torchvision give the outputs of their architectures."""

import convert_torchvision_backbone as script
import pytest
import torch
from state_dicts import ConversionError, save
from transformers import ResNetBackbone

from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_resnext import NGSANResNeXtBackbone
from tests.conversion.layouts import (
    DEPTHS,
    VGG_11,
    assert_same_map,
    torchvision_resnet_map,
    torchvision_resnet_state_dict,
    vgg_map,
    vgg_state_dict,
)
from tests.tables import each_row

VGG_16 = (64, 64, "pool", 128, 128, "pool", *(256,) * 3, "pool", *(512,) * 3, "pool", *(512,) * 3, "pool")


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
    weights = {name: weight for name, weight in weights.items() if not name.endswith("batches_tracked")}
    script.convert_weights(script.CONFIGURATIONS[name], weights)  # torchvision's first checkpoints have no counts


@each_row(
    ("spoil", "message"),
    [
        (lambda w: w.pop("features.3.bias"), r"lacks .*1 of 16.* features.3.bias"),
        (lambda w: w.update({"features.99.weight": torch.zeros(1)}), "has weights .*features.99.weight"),
        (lambda w: w.update({"features.0.weight": torch.zeros(64, 3, 5, 5)}), r"\(64, 3, 5, 5\) .*\(64, 3, 3, 3\)"),
        (lambda w: w["features.0.bias"].fill_(float("nan")), "features.0.bias has values that are not finite"),
    ],
)
def test_another_checkpoint_is_refused(spoil, message):
    weights = vgg_state_dict()
    spoil(weights)
    with pytest.raises(ConversionError, match=message):
        script.convert_weights(script.CONFIGURATIONS["vgg11"], weights)


@each_row(
    ("name", "weights"),
    [("vgg11", vgg_state_dict), ("resnext50_32x4d", lambda: torchvision_resnet_state_dict(DEPTHS[50], 32, 4))],
)
def test_the_folder_holds_the_backbone_and_its_preprocessing(name, weights, tmp_path):
    converted, folder = script.convert_weights(script.CONFIGURATIONS[name], weights()), tmp_path / "backbones" / name
    save(converted, folder)
    assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors", "preprocessor_config.json"}
    loaded, images = type(converted.model).from_pretrained(folder).eval(), torch.randn(1, 3, 64, 64)
    assert torch.equal(loaded(images).feature_maps[-1], converted.model(images).feature_maps[-1])
    pixels = torch.full((300, 200, 3), 128, dtype=torch.uint8).numpy()
    actual = CaptioningImageProcessor.from_pretrained(folder)(pixels, return_tensors="pt").pixel_values
    expected = (128 / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(actual, expected[None, :, None, None].expand(1, 3, 224, 224))

"""EfficientNet-Lite against the PyTorch port of its authors' code, and what the common tests do not ask."""

import contextlib
import io

import efficientnet_lite_pytorch
import numpy as np
import pytest
import torch
from torch import nn

from hf_ngsan.models.backbone_sources import IMAGE_SIZES, VARIANTS
from hf_ngsan.models.efficientnet_lite_classifier import NGSANEfficientNetLiteForImageClassification
from hf_ngsan.models.modeling_efficientnet_lite import (
    NGSANEfficientNetLiteBackbone,
    NGSANEfficientNetLiteConfig,
    SameConvolution,
)
from hf_ngsan.models.pretrained_weights import source_names
from tests.models.efficientnet_lite.tiny import FIELDS, classifier_config
from tests.tables import each_row

PARAMETERS = {
    "efficientnet-lite0": 4_652_008,
    "efficientnet-lite1": 5_416_680,
    "efficientnet-lite2": 6_092_072,
    "efficientnet-lite3": 8_197_096,
    "efficientnet-lite4": 13_006_568,
}


def of_the_port(name: str) -> nn.Module:
    """Returns the port with weights, statistics among them, as a trained net might have."""
    torch.manual_seed(0)
    port = efficientnet_lite_pytorch.EfficientNet.from_name(name).eval()
    for module in port.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return port


def stages_of_the_port(port: nn.Module, config: NGSANEfficientNetLiteConfig, images: torch.Tensor) -> list:
    hidden_states = port._swish(port._bn0(port._conv_stem(images)))
    stages, blocks = [hidden_states], iter(port._blocks)
    for depth in config.depths:
        for _ in range(depth):
            hidden_states = next(blocks)(hidden_states)
        stages.append(hidden_states)
    return [*stages, port._swish(port._bn1(port._conv_head(hidden_states)))]


@each_row("name", VARIANTS)
def test_every_stage_is_that_of_the_authors_code(name):
    port = of_the_port(name)
    config = NGSANEfficientNetLiteConfig(**VARIANTS[name], head_size=1280, num_labels=1000)
    model = NGSANEfficientNetLiteForImageClassification(config).eval()
    weights = port.state_dict()
    renamed = {f"efficientnet_lite.{ours}": weights[theirs] for ours, theirs in source_names(config)}
    renamed |= {f"classifier.{field}": weights[f"_fc.{field}"] for field in ("weight", "bias")}
    model.load_state_dict(renamed)
    images = torch.randn(1, 3, IMAGE_SIZES[name], IMAGE_SIZES[name])  # the port pads for this size only
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):  # it prints shapes
        expected, found = stages_of_the_port(port, config, images), model(images, output_hidden_states=True)
        assert len(found.hidden_states) == len(expected) == 9
        for ours, theirs in zip(found.hidden_states, expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found.logits, port(images), atol=1e-5, rtol=1e-5)
    assert model.num_parameters() == sum(one.numel() for one in port.parameters()) == PARAMETERS[name]


@each_row(("length", "kernel_size", "before", "behind"), [(8, 3, 0, 1), (7, 3, 1, 1), (8, 5, 1, 2)])
def test_padding_is_that_of_tensorflow(length, kernel_size, before, behind):
    convolution = SameConvolution(2, 3, kernel_size, stride=2)
    image = np.random.default_rng(0).normal(size=(2, length, length + 1)).astype(np.float32)
    found = convolution(torch.from_numpy(image)[None])[0].detach().numpy()
    assert convolution.sides(length) == (before, behind)
    padded = np.pad(image, [(0, 0), (before, behind), convolution.sides(length + 1)])
    weight = convolution.weight.detach().numpy()
    assert found.shape == (3, -(-length // 2), -(-(length + 1) // 2))
    for channel, row, column in np.ndindex(found.shape):
        taps = padded[:, 2 * row : 2 * row + kernel_size, 2 * column : 2 * column + kernel_size]
        assert found[channel, row, column] == pytest.approx((taps * weight[channel]).sum(), abs=1e-5)


def test_the_head_is_the_last_stage_where_there_is_one():
    assert NGSANEfficientNetLiteConfig().out_features == ["stage7"]
    config = NGSANEfficientNetLiteConfig(**FIELDS, head_size=12, out_features=["stage2", "head"])
    assert config.stage_names == ["stem", "stage1", "stage2", "stage3", "head"]
    backbone = NGSANEfficientNetLiteBackbone(config).eval()
    assert backbone.channels == [6, 12]
    assert [one.shape[1:] for one in backbone(torch.rand(1, 3, 33, 32)).feature_maps] == [(6, 9, 8), (12, 5, 4)]


def test_a_classifier_learns_from_labels():
    model = NGSANEfficientNetLiteForImageClassification(classifier_config(num_labels=5))
    output = model(torch.rand(3, 3, 32, 32), labels=torch.tensor([0, 4, 2]))
    expected = nn.functional.cross_entropy(output.logits, torch.tensor([0, 4, 2]))
    torch.testing.assert_close(output.loss, expected)
    output.loss.backward()
    assert model.efficientnet_lite.stages["stem"].convolution.weight.grad.abs().sum() > 0

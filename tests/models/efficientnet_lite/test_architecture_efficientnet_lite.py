"""EfficientNet-Lite against the PyTorch port of its authors' code, and what the common tests do not ask."""

import contextlib
import io
import re

import efficientnet_lite_pytorch
import numpy as np
import pytest
import torch
from torch import nn

from hf_ngsan.models.backbone_sources import IMAGE_SIZES, VARIANTS
from hf_ngsan.models.modeling_efficientnet_lite import (
    NGSANEfficientNetLiteBackbone,
    NGSANEfficientNetLiteConfig,
    SameConvolution,
)
from hf_ngsan.models.pretrained_weights import source_names
from tests.tables import each_row

PARAMETERS = dict(zip(VARIANTS, (4_652_008, 5_416_680, 6_092_072, 8_197_096, 13_006_568), strict=True))
"""Of the authors' classifiers of 1,000 classes."""
HEAD = r"_conv_head|_bn1|_fc"


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
    return stages


@each_row("name", VARIANTS)
def test_every_stage_is_that_of_the_authors_code(name):
    port, config = of_the_port(name), NGSANEfficientNetLiteConfig(**VARIANTS[name])
    model, weights = NGSANEfficientNetLiteBackbone(config).eval(), port.state_dict()
    model.load_state_dict({ours: weights[theirs] for ours, theirs in source_names(config)})
    images = torch.randn(1, 3, IMAGE_SIZES[name], IMAGE_SIZES[name])  # the port pads for this size only
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):  # it prints shapes
        expected = stages_of_the_port(port, config, images)
        found = model(images, output_hidden_states=True).hidden_states
    assert len(found) == len(expected) == 8
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    head = sum(weight.numel() for part, weight in port.named_parameters() if re.match(HEAD, part))
    assert model.num_parameters() + head == PARAMETERS[name]


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

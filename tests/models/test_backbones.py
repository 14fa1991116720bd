"""Backbones beyond transformers' common tests: sizes, frozen norms, and the code of EfficientNet-Lite."""

import contextlib
import io
import re

import efficientnet_lite_pytorch
import torch
from torch import nn

from hf_ngsan.models.backbone_sources import IMAGE_SIZES, VARIANTS
from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone, NGSANEfficientNetLiteConfig
from hf_ngsan.models.modeling_resnext import FrozenBatchNorm2d, NGSANResNeXtBackbone, NGSANResNeXtConfig
from hf_ngsan.models.pretrained_weights import source_names
from tests.tables import each_row

PARAMETERS = dict(zip(VARIANTS, (4_652_008, 5_416_680, 6_092_072, 8_197_096, 13_006_568), strict=True))
"""Numbers of parameters of the authors' classifiers of 1,000 classes."""
TINY_RESNEXT = {
    **{"embedding_size": 4, "depths": [1, 2, 1], "hidden_sizes": [8, 16, 24], "groups": 2, "width_per_group": 2},
}
HEAD = r"_conv_head|_bn1|_fc"


def make_port(name: str) -> nn.Module:
    """Returns the port with weights and statistics such as those of a trained network."""
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
    port, config = make_port(name), NGSANEfficientNetLiteConfig(**VARIANTS[name])
    model, weights = NGSANEfficientNetLiteBackbone(config).eval(), port.state_dict()
    model.load_state_dict({ours: weights[theirs] for ours, theirs in source_names(config)})
    images = torch.randn(1, 3, IMAGE_SIZES[name], IMAGE_SIZES[name])  # the port pads only for this size
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):  # it prints shapes
        expected = stages_of_the_port(port, config, images)
        actual = model(images, output_hidden_states=True).hidden_states
    assert len(actual) == len(expected) == 8
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    head = sum(weight.numel() for part, weight in port.named_parameters() if re.match(HEAD, part))
    assert model.num_parameters() + head == PARAMETERS[name]


def test_frozen_normalizations_never_change_in_training():
    backbone = NGSANResNeXtBackbone(NGSANResNeXtConfig(**TINY_RESNEXT, frozen_batch_norm=True))
    for name, buffer in backbone.named_buffers():
        buffer.uniform_(0.5, 1.5)
        assert "normalization" in name
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    images = torch.rand(2, 3, 32, 32)
    optimizer = torch.optim.AdamW(backbone.parameters(), lr=0.1, weight_decay=0.1)
    expected = backbone.eval()(images).feature_maps[0].detach()
    training = backbone.train()(images).feature_maps[0]
    torch.testing.assert_close(training, expected)
    training.sum().backward()
    optimizer.step()
    changed = {name for name, tensor in backbone.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if "convolution" in name}


@each_row(
    "make",
    [
        lambda: NGSANEfficientNetLiteBackbone(
            NGSANEfficientNetLiteConfig(embedding_size=8, depths=[1, 2, 2], hidden_sizes=[8, 12, 16])
        ),
        lambda: NGSANResNeXtBackbone(NGSANResNeXtConfig(**TINY_RESNEXT)),
        lambda: NGSANResNeXtBackbone(NGSANResNeXtConfig(**TINY_RESNEXT, frozen_batch_norm=True)),
    ],
)
def test_normalizations_that_inference_folds_into_convolutions_change_no_map(make):
    backbone, images, passed = make().eval(), torch.randn(5, 3, 65, 48), []
    with torch.no_grad():
        for module in backbone.modules():
            if hasattr(module, "running_mean"):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
                module.weight.uniform_(0.5, 2.0)
                module.bias.normal_()
    expected = backbone(images).feature_maps[-1].detach()
    for module in backbone.modules():
        if isinstance(module, (nn.BatchNorm2d, FrozenBatchNorm2d)):
            module.register_forward_hook(lambda layer, *_: passed.append(layer))
    with torch.inference_mode():
        actual = backbone(images).feature_maps[-1].clone()
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=2e-4)
    assert not passed

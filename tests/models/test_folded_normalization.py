"""Batch normalization that inference folds into convolutions: the same maps, of the weights as they are now."""

import torch
from torch import nn

from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone, NGSANEfficientNetLiteConfig
from hf_ngsan.models.modeling_resnext import FrozenBatchNorm2d, NGSANResNeXtBackbone, NGSANResNeXtConfig
from hf_ngsan.models.modeling_vision import ConvolutionalBackbone
from tests.tables import each_row

SMALL = {"embedding_size": 8, "depths": [1, 2, 2], "hidden_sizes": [8, 12, 16]}
RESNEXT = {"embedding_size": 8, "hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1]}


def backbone(name: str) -> ConvolutionalBackbone:
    torch.manual_seed(0)
    if name == "efficientnet":
        found: ConvolutionalBackbone = NGSANEfficientNetLiteBackbone(NGSANEfficientNetLiteConfig(**SMALL))
    else:
        config = NGSANResNeXtConfig(**RESNEXT, frozen_batch_norm=name == "resnext, frozen")
        found = NGSANResNeXtBackbone(config)
    with torch.no_grad():
        for module in found.modules():
            if hasattr(module, "running_mean"):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
                module.weight.uniform_(0.5, 2.0)
                module.bias.normal_()
    return found.eval()


def images(number: int = 5) -> torch.Tensor:
    return torch.randn(number, 3, 65, 48, generator=torch.Generator().manual_seed(1))


def maps(model: nn.Module, pixels: torch.Tensor, folded: bool) -> torch.Tensor:
    if not folded:
        return model(pixels).feature_maps[-1].detach()
    with torch.inference_mode():
        return model(pixels).feature_maps[-1].clone()


NAMES = ["efficientnet", "resnext", "resnext, frozen"]


@each_row("name", NAMES)
def test_inference_gives_the_maps_of_a_pass_with_gradients(name):
    model = backbone(name)
    folded = maps(model, images(), folded=True)
    torch.testing.assert_close(folded, maps(model, images(), folded=False), rtol=1e-4, atol=2e-4)
    passed: list[nn.Module] = []
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm2d, FrozenBatchNorm2d)):
            module.register_forward_hook(lambda layer, *_: passed.append(layer))
    maps(model, images(), folded=True)
    assert not passed  # normalizations are part of the convolutions

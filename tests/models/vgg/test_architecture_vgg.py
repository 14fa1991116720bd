"""What transformers' common tests do not ask of the VGG backbone."""

import torch

from hf_ngsan.models.modeling_vgg import NGSANVGGBackbone, NGSANVGGConfig


def test_vgg_11_is_that_of_the_paper():
    with torch.device("meta"):
        backbone = NGSANVGGBackbone(NGSANVGGConfig())
    convolutions = [(3, 64), (64, 128), (128, 256), (256, 256), (256, 512), *[(512, 512)] * 3]
    assert backbone.num_parameters() == sum(9 * a * b + b for a, b in convolutions) == 9_220_480
    assert backbone(torch.empty(2, 3, 224, 224, device="meta")).feature_maps[-1].shape == (2, 512, 14, 14)
    assert backbone.channels == [512]


def test_a_tiny_net_reads_small_scenes():
    config = NGSANVGGConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 128], use_batch_norm=True)
    assert NGSANVGGBackbone(config)(torch.rand(2, 3, 64, 64)).feature_maps[0].shape == (2, 128, 8, 8)

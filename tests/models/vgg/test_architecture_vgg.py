"""What transformers' common tests do not ask of the VGG backbone."""

import pytest
import torch

from hf_ngsan.models.modeling_vgg import NGSANVGGBackbone, NGSANVGGConfig
from tests.tables import each_row


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


def test_the_smallest_image_gives_one_cell():
    backbone = NGSANVGGBackbone(NGSANVGGConfig(hidden_sizes=[4] * 5))
    assert backbone(torch.zeros(1, 3, 16, 16)).feature_maps[0].shape == (1, 4, 1, 1)


@each_row(
    ("fields", "message"),
    [
        ({"depths": []}, "depths has 0 stages"),
        ({"depths": [1, 1]}, "depths has 2 stages and hidden_sizes 5"),
        ({"out_features": ["stem"]}, "subset of stage_names"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        NGSANVGGConfig(**fields)

"""What transformers' common tests do not ask of the ResNeXt backbone."""

import torch

from hf_ngsan.models.modeling_resnext import NGSANResNeXtBackbone, NGSANResNeXtConfig
from tests.tables import each_row

TINY = {"embedding_size": 4, "depths": [1, 2, 1], "hidden_sizes": [8, 16, 24], "groups": 2, "width_per_group": 2}


@each_row(
    ("fields", "parameters"),
    [
        ({}, 88_791_336 - 2048 * 1000 - 1000),
        ({"depths": [3, 8, 36, 3], "groups": 1, "width_per_group": 64}, 60_192_808 - 2048 * 1000 - 1000),
    ],
)
def test_the_parameters_are_those_that_torchvision_tells_less_the_classifier(fields, parameters):
    with torch.device("meta"):
        backbone = NGSANResNeXtBackbone(NGSANResNeXtConfig(**fields))
    assert backbone.num_parameters() == parameters
    assert backbone(torch.empty(1, 3, 224, 224, device="meta")).feature_maps[0].shape == (1, 2048, 7, 7)


@each_row("stride_in_1x1", [False, True])
def test_a_dilated_last_stage_leaves_the_size_of_the_map_alone(stride_in_1x1):
    images = torch.rand(1, 3, 64, 96)
    sizes = {}
    for dilation in (1, 2):
        fields = {"last_stage_dilation": dilation, "stride_in_1x1": stride_in_1x1}
        outputs = NGSANResNeXtBackbone(NGSANResNeXtConfig(**TINY, **fields))(images, output_hidden_states=True)
        sizes[dilation] = [tuple(state.shape[2:]) for state in outputs.hidden_states]
    assert sizes == {1: [(16, 24), (16, 24), (8, 12), (4, 6)], 2: [(16, 24), (16, 24), (8, 12), (8, 12)]}


def test_frozen_normalizations_never_change_in_training():
    backbone = NGSANResNeXtBackbone(NGSANResNeXtConfig(**TINY, frozen_batch_norm=True))
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


def test_undeformed_deformable_convolutions_are_ordinary_ones():
    deformable = NGSANResNeXtBackbone(NGSANResNeXtConfig(**TINY, deformable_stages=[1, 2, 3])).eval()
    ordinary = NGSANResNeXtBackbone(NGSANResNeXtConfig(**TINY)).eval()
    weights = {name: weight for name, weight in deformable.state_dict().items() if "offset" not in name}
    ordinary.load_state_dict(weights)
    images = torch.rand(2, 3, 40, 56)
    expected, found = (backbone(images).feature_maps[0] for backbone in (ordinary, deformable))
    torch.testing.assert_close(found, expected)

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

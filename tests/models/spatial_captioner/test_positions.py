"""What the spatial captioner knows of where its cells are: their order, or their boxes."""

import math

import torch

from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerEncoder
from tests.models.spatial_captioner.tiny import tiny_config
from tests.models.tiny import random_boxes
from tests.tables import each_row


def encoder(position_embedding: str, hidden_size: int = 16) -> SpatialCaptionerEncoder:
    config = tiny_config(
        position_embedding=position_embedding,
        hidden_size=hidden_size,
        visual_feature_size=hidden_size,
        vision_config=None,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    return SpatialCaptionerEncoder(config).eval()


def sines_and_cosines(value: float, channels: int) -> list[float]:
    angles = [value / 10000 ** (channel / channels) for channel in range(0, channels, 2)]
    return [*map(math.sin, angles), *map(math.cos, angles)]


def test_sinusoids_of_the_order_count_the_cells():
    found = encoder("sequence").position_embedding(torch.zeros(1, 5, 16), None, None)
    for index in range(5):
        torch.testing.assert_close(found[0, index], torch.tensor(sines_and_cosines(index, 16)))


@each_row("position_embedding", ["sequence", "boxes"])
def test_boxes_make_the_order_meaningless(position_embedding):
    model = encoder(position_embedding)
    generator = torch.Generator().manual_seed(2)
    features, boxes = torch.randn(1, 6, 16, generator=generator), random_boxes(1, 6, generator=generator)
    order = torch.tensor([4, 0, 5, 1, 3, 2])
    states = model(features, visual_boxes=boxes).last_hidden_state
    shuffled = model(features[:, order], visual_boxes=boxes[:, order]).last_hidden_state
    difference = (shuffled - states[:, order]).abs().max()
    assert (difference < 1e-5) == (position_embedding == "boxes")

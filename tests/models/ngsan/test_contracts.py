"""What boxes and the order of regions change in the NG-SAN family; see `tests/models/test_contracts.py`."""

import torch

from tests.models.architectures import CLOSE, logits_of
from tests.models.ngsan.variants import REPRESENTATIVES
from tests.models.tiny import random_images, tiny_captioner
from tests.tables import each_row

LENGTHS = [6, 1, 2, 4]


@each_row("name", REPRESENTATIVES)
def test_order_of_regions_changes_nothing(name):
    model, images = tiny_captioner(**REPRESENTATIVES[name]), random_images(LENGTHS)
    order = torch.randperm(max(LENGTHS), generator=torch.Generator().manual_seed(3))
    permuted = {key: tensor[:, order] for key, tensor in images.items()}
    torch.testing.assert_close(logits_of(model, permuted), logits_of(model, images), **CLOSE)


def test_only_signed_geometry_sees_that_a_layout_is_mirrored():
    images = random_images(LENGTHS)
    mirrored = {**images, "visual_boxes": (1 - images["visual_boxes"])[..., [2, 1, 0, 3]]}
    mirrored["visual_boxes"][..., [1, 3]] = images["visual_boxes"][..., [1, 3]]
    unsigned, signed = tiny_captioner(), tiny_captioner(geometry_features="signed")
    torch.testing.assert_close(logits_of(unsigned, mirrored), logits_of(unsigned, images), rtol=1e-3, atol=1e-3)
    assert (logits_of(signed, mirrored) - logits_of(signed, images)).abs().max() > 0.1

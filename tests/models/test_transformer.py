"""The shared blocks in the hands of tools that freeze, checkpoint or quantize parts of a model."""

import pytest
import torch

from tests.models import tiny
from tests.models.spatial_captioner import tiny as spatial
from tests.models.tiny import FEATURE_SIZE, random_boxes
from tests.tables import each_row

CAPTIONERS = {
    "ngsan": lambda: tiny.tiny_captioner(geometric_bias=["content", "query", "key"], absolute_geometry=True),
    "spatial": spatial.tiny_captioner,
    "spatial with a projection": lambda: spatial.tiny_captioner(hidden_size=16, position_embedding="boxes"),
}
every_captioner = each_row("make", CAPTIONERS.values())
LABELS = torch.tensor([[4, 7, 5, 2], [9, 6, 2, -100]])


@pytest.fixture
def images() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    features = torch.randn(2, 5, FEATURE_SIZE, generator=generator) * mask[..., None]
    return {
        "visual_features": features,
        "visual_boxes": random_boxes(2, 5, generator=generator),
        "attention_mask": mask,
    }


@every_captioner
@each_row("part", ["encoder", "decoder"])
def test_adapters_in_a_frozen_model_get_their_gradients_through_checkpoints(make, part, images):
    """As LoRA does it: everything is frozen but some weights within the layers of one part."""
    gradients = []
    for checkpointing in (False, True):
        model = make().train()
        model.requires_grad_(False)
        layers = getattr(model.model, part).layers
        adapted = [layer.self_attn.q_proj.weight.requires_grad_() for layer in layers]
        if checkpointing:
            model.activation_checkpointing_enable()
        torch.manual_seed(5)
        model(**images, labels=LABELS).loss.backward()
        gradients.append([weight.grad for weight in adapted])
    assert all(gradient is not None and gradient.any() for gradient in gradients[1])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)

"""Temporal positions: off by default; sinusoids of each frame's place when they are on."""

import math

import torch

from tests.models.tiny import FEATURE_SIZE, tiny_captioner

WORDS = torch.tensor([[1, 5, 6], [1, 7, 8]])


def video(lengths=(5, 3)) -> dict[str, torch.Tensor]:
    mask = torch.tensor([[1] * length + [0] * (max(lengths) - length) for length in lengths])
    features = torch.randn(len(lengths), max(lengths), FEATURE_SIZE) * mask[..., None]
    return {"visual_features": features, "attention_mask": mask}


def logits(model, frames: dict) -> torch.Tensor:
    with torch.no_grad():
        return model(**frames, decoder_input_ids=WORDS).logits


def test_the_first_layer_sees_sinusoids_of_places():
    model = tiny_captioner(geometric_bias=[], temporal_positions=True, num_hidden_layers=1)
    frames, seen = video((4,)), []
    encoder = model.model.encoder
    encoder.layers[0].register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    encoder(**frames)
    size = model.config.hidden_size
    projected = torch.relu(encoder.input_proj(frames["visual_features"]))
    for place in range(4):
        angles = [place / 10000 ** (2 * channel / size) for channel in range(size // 2)]
        sinusoids = torch.tensor([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])
        torch.testing.assert_close(seen[0][0, place], projected[0, place] + sinusoids)

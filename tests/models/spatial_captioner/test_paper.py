"""What Springenberg et al. 2018 say of the captioner: sizes, where dropout is, the map of VGG-11."""

import torch
from torch import nn

from hf_ngsan.models.configuration_spatial_captioner import SpatialCaptionerConfig
from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerForConditionalGeneration
from tests.models.loops import sinusoid
from tests.models.spatial_captioner.tiny import random_cells, tiny_captioner
from tests.tables import each_row

RATE = 0.25
CELLS = [6, 3]
WORDS = torch.tensor([[1, 5, 6, 7], [1, 8, 9, 10]])


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@each_row("bias", [False, True])
def test_number_of_parameters(bias):
    width, inner, words = 512, 1024, 9491
    with torch.device("meta"):
        model = SpatialCaptionerForConditionalGeneration(SpatialCaptionerConfig(attention_bias=bias))
    attention = 4 * (width * width + bias * width)  # eq. 1 and 3
    feed_forward = width * inner + inner + inner * width + width  # eq. 4
    norm = 2 * width
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert count(model.model.encoder) == 2 * encoder
    assert count(model.model.decoder) == 4 * decoder + words * width
    assert count(model.model.vision) == 9_220_480
    assert count(model) == 2 * encoder + 4 * decoder + 2 * words * width + words + 9_220_480
    assert round(count(model) / 1e6, 2) == (35.77 if bias else 35.75)


@torch.no_grad()
def test_what_enters_the_first_layers_is_dropped():
    model = tiny_captioner(dropout=RATE, attention_dropout=0.0).train()
    features = random_cells(CELLS)["visual_features"][:1]
    outputs = model(features, decoder_input_ids=WORDS[:1], output_hidden_states=True)
    size = model.config.hidden_size
    positions = torch.stack([sinusoid(position, size) for position in range(6)])
    cells = model.model.encoder.input_proj(features[0]) + positions
    embeddings = model.model.decoder.embed_tokens(WORDS[0]) * size**0.5 + positions[: WORDS.shape[1]]
    for entered, kept in ((outputs.encoder_hidden_states[0], cells), (outputs.decoder_hidden_states[0], embeddings)):
        dropped = entered[0] == 0
        assert 0.1 < dropped.float().mean() < 0.4
        torch.testing.assert_close(entered[0], (kept / (1 - RATE)).masked_fill(dropped, 0), rtol=1e-5, atol=1e-5)

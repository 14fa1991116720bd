"""Springenberg et al. 2018: sizes, dropout, positions, pixels, and the complete captioner against loops, with eq. 2.

`tests/models/test_contracts.py` and `test_generation.py` test that padding, caches and beams do not change results.
"""

import torch
from torch import nn

from hf_ngsan.models.configuration_spatial_captioner import SpatialCaptionerConfig
from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerEncoder, SpatialCaptionerForConditionalGeneration
from tests.models import loops
from tests.models.spatial_captioner.tiny import random_cells, tiny_captioner, tiny_config
from tests.models.tiny import one_image, random_boxes
from tests.tables import each_row

SMALL = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 10, "decoder_layers": 2}
WORDS = torch.tensor([[1, 5, 6, 7, 9], [1, 8, 5, 11, 12], [1, 10, 4, 9, 6]])


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


@each_row("position_embedding", ["sequence", "boxes"])
def test_boxes_make_the_order_meaningless(position_embedding):
    fields = {"hidden_size": 16, "visual_feature_size": 16, "initializer_range": 0.3}
    model = SpatialCaptionerEncoder(tiny_config(position_embedding=position_embedding, **fields)).eval()
    features, boxes, order = torch.randn(1, 6, 16), random_boxes(1, 6), torch.tensor([4, 0, 5, 1, 3, 2])
    states = model(features, visual_boxes=boxes).last_hidden_state
    shuffled = model(features[:, order], visual_boxes=boxes[:, order]).last_hidden_state
    difference = (shuffled - states[:, order]).abs().max()
    assert (difference < 1e-5) == (position_embedding == "boxes")


@each_row(
    "fields",
    [
        {},
        {"attention_temperature": "head_dim"},
        {"attention_bias": True, "hidden_size": 12, "num_attention_heads": 3},
        {"encoder_layers": 1, "decoder_layers": 1, "num_attention_heads": 1},
    ],
)
@each_row("implementation", ["eager", "sdpa"])
@torch.no_grad()
def test_the_captioner_is_its_equations(fields, implementation):
    model, cells = tiny_captioner(attn_implementation=implementation, **{**SMALL, **fields}), random_cells([6, 3, 4])
    assert (model.model.encoder.input_proj is None) == (model.config.hidden_size == 12)
    logits = model(**cells, decoder_input_ids=WORDS).logits
    for row, words in enumerate(WORDS.tolist()):
        expected, _ = loops.caption(model, words, one_image(cells, row)["visual_features"][0])
        torch.testing.assert_close(logits[row], expected, rtol=1e-4, atol=1e-4)

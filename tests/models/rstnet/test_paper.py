"""The equations of Zhang et al. 2021, and the captioner with them, against loops."""

import math

import pytest
import torch

from hf_ngsan.models.geometry import grid_boxes
from hf_ngsan.models.modeling_rstnet import AdaptiveAttention, GridGeometry
from tests.models.loops import attend, linear, normalize, sinusoid, softmax
from tests.models.rstnet.tiny import random_grids, tiny_captioner, tiny_config
from tests.tables import each_row

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def relative(first: list[float], second: list[float], offset: float) -> list[float]:
    """Eq. 1-4 for two cells `x_min, y_min, x_max, y_max`; ratios of 0 are replaced by 1e-3."""
    features = []
    for low, high in ((0, 2), (1, 3)):
        distance = abs(first[low] + first[high] - second[low] - second[high]) / 2
        features.append(math.log(max(distance / (first[high] - first[low] + offset), 1e-3)))
    for low, high in ((0, 2), (1, 3)):
        features.append(math.log((first[high] - first[low] + offset) / (second[high] - second[low] + offset)))
    return features


def cells(rows: int, columns: int) -> list[list[float]]:
    return [
        [column / columns, row / rows, (column + 1) / columns, (row + 1) / rows]
        for row in range(rows)
        for column in range(columns)
    ]


@torch.no_grad()
@each_row("offset", [1, 0])
@each_row("fusion", ["additive", "log"])
@each_row("embedding", ["linear", "sinusoidal"])
def test_geometric_weights_are_eq_1_to_6(offset, fusion, embedding):
    config = tiny_config(grid_size_offset=offset, geometry_fusion=fusion, geometry_embedding=embedding)
    geometry, grid = GridGeometry(config), cells(2, 3)
    assert torch.allclose(grid_boxes(2, 3), torch.tensor(grid))
    actual = geometry(grid_boxes(2, 3)[None], torch.zeros(1, 6, 32))[0]
    actual = actual.exp() if fusion == "log" else actual
    for i, first in enumerate(grid):
        for j, second in enumerate(grid):
            features = torch.tensor(relative(first, second, float(offset)))
            if embedding == "linear":
                embedded = linear(geometry.embedding.projection, features).relu()
            else:
                embedded = torch.cat([(100 * features).sin(), (100 * features).cos()])
            weights = linear(geometry.weights.content_proj, embedded).clamp(min=1e-6 if fusion == "log" else 0)
            torch.testing.assert_close(actual[:, i, j], weights, rtol=0, atol=1e-4)


def adaptive_by_loops(module, query: torch.Tensor, tokens: torch.Tensor, signal: torch.Tensor):
    """Eq. 17-24 for one word: output, weights `(heads, tokens + 1)` and visualness."""
    size, outputs, maps = module.head_dim, [], []
    own_key, own_value = module.signal_proj or module.k_proj, module.signal_proj or module.v_proj
    keys = [*(linear(module.k_proj, token) for token in tokens), linear(own_key, signal)]
    values = [*(linear(module.v_proj, token) for token in tokens), linear(own_value, signal)]
    for head in range(module.config.num_attention_heads):
        part = slice(head * size, (head + 1) * size)
        weights = softmax([(linear(module.q_proj, query)[part] @ key[part]).item() / math.sqrt(size) for key in keys])
        outputs.append(sum(weight * value[part] for weight, value in zip(weights, values, strict=True)))
        maps.append(weights)
    return linear(module.out_proj, torch.cat(outputs)), maps, 1 - sum(weights[-1] for weights in maps) / len(maps)


@torch.no_grad()
@each_row("projection", ["shared", "separate"])
@each_row("captions", [1, 2])
def test_adaptive_attention_is_eq_17_to_24(projection, captions):
    config = tiny_config(language_signal_projection=projection, attn_implementation="eager")
    module = AdaptiveAttention(config, 0).eval()
    query, signal = torch.randn(2 * captions, 3, 32), torch.randn(2 * captions, 3, 32)
    tokens, mask = torch.randn(2, 4, 32), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    output, weights, visualness = module(query, tokens, signal, token_mask=mask)
    for row in range(2 * captions):
        real = int(mask[row // captions].sum())
        for t in range(3):
            expected = adaptive_by_loops(module, query[row, t], tokens[row // captions, :real], signal[row, t])
            torch.testing.assert_close(output[row, t], expected[0], **CLOSE)
            kept = torch.cat([weights[row, :, t, :real], weights[row, :, t, -1:]], dim=-1)
            torch.testing.assert_close(kept, torch.tensor(expected[1]), **CLOSE)
            assert weights[row, :, t, real:-1].abs().sum() == 0
            assert visualness[row, t].item() == pytest.approx(expected[2], abs=1e-5)


@torch.no_grad()
def test_words_without_the_language_signal_attend_to_the_cells_alone_in_training():
    module = AdaptiveAttention(tiny_config(language_signal_dropout=0.25, attention_dropout=0.0), 0)
    query, tokens, signal = torch.randn(4, 100, 32), torch.randn(2, 5, 32), torch.randn(4, 100, 32)
    output, _, visualness = module.eval()(query, tokens, signal)
    trained, _, without = module.train()(query, tokens, signal)
    dropped = without == 1
    assert 0.2 < dropped.float().mean() < 0.3 and visualness.max() < 1
    assert torch.equal(trained[~dropped], output[~dropped]) and torch.equal(without[~dropped], visualness[~dropped])
    row, word = dropped.nonzero()[0].tolist()
    expected, _ = attend(module, query[row, word], tokens[row // 2])
    torch.testing.assert_close(trained[row, word], expected, **CLOSE)


def fed(block, state: torch.Tensor) -> torch.Tensor:
    inner = linear(block.feed_forward.up, state).relu()
    return normalize(block.norm, state + linear(block.feed_forward.down, inner))


def caption_by_loops(model, features: torch.Tensor, words: list[int]) -> torch.Tensor:
    """Logits `(length, vocab_size)` of the paper's model, one layer, cell and word at a time."""
    encoder, decoder = model.model.encoder, model.model.decoder
    states = [linear(encoder.input_proj, cell).relu() for cell in features]
    side = math.isqrt(len(states))
    bias = encoder.geometry(grid_boxes(side, side)[None], features[None])[0]
    for layer in encoder.layers:
        attended = [attend(layer.self_attn, state, states, bias=bias[:, i])[0] for i, state in enumerate(states)]
        normed = [normalize(layer.self_attn_norm.norm, old + new) for old, new in zip(states, attended, strict=True)]
        states = [fed(layer.feed_forward, state) for state in normed]
    signals = decoder.language_model(torch.tensor([words])).last_hidden_state[0]
    scale = math.sqrt(32) if model.config.scale_embeddings else 1.0
    hidden = [decoder.embed_tokens.weight[word] * scale + sinusoid(t, 32) for t, word in enumerate(words)]
    for layer in decoder.layers:
        new = []
        for t, state in enumerate(hidden):
            state = normalize(layer.self_attn_norm.norm, state + attend(layer.self_attn, state, hidden[: t + 1])[0])
            if layer.is_adaptive:
                attended = adaptive_by_loops(layer.encoder_attn, state, torch.stack(states), signals[t])[0]
            else:
                attended, _ = attend(layer.encoder_attn, state, states)
            new.append(fed(layer.feed_forward, normalize(layer.encoder_attn_norm.norm, state + attended)))
        hidden = new
    return torch.stack([linear(model.lm_head, state) for state in hidden])


@torch.no_grad()
@each_row(("implementation", "scale"), [("eager", False), ("sdpa", True)])
def test_the_captioner_is_its_equations(implementation, scale):
    model, grids = tiny_captioner(attn_implementation=implementation, scale_embeddings=scale), random_grids(2)
    words = torch.tensor([[1, 5, 6, 7], [1, 8, 5, 11]])
    actual = model(**grids, decoder_input_ids=words).logits
    for row in range(2):
        expected = caption_by_loops(model, grids["visual_features"][row], words[row].tolist())
        torch.testing.assert_close(actual[row], expected, rtol=1e-4, atol=1e-4)

"""Normalized self-attention and its norms against loops over eq. 2, 6, 7 and 10 of Guo et al. 2020."""

import itertools
import math

import torch
from torch import nn

from hf_ngsan.models.attention import BatchNorm, InstanceNorm, MultiHeadAttention
from hf_ngsan.models.geometry import relative_geometry
from hf_ngsan.models.modeling_ngsan import NGSANEncoder, NGSANEncoderLayer
from tests.models.test_geometry import bias_by_loops
from tests.models.tiny import random_images, tiny_config
from tests.tables import each_row

EPS = 1e-5


def mask_of(lengths: list[int], width: int) -> torch.Tensor:
    return (torch.arange(width)[None] < torch.tensor(lengths)[:, None]).long()


def randomize(module: nn.Module, seed: int = 0) -> nn.Module:
    """Random values for all parameters and running statistics, also for those that are initialized as 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=generator) / tensor.shape[-1] ** 0.5)
        for tensor in module.buffers():
            if tensor.is_floating_point():
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return module


def instance_norm_by_loops(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Eq. 6: normalizes each channel of each image over its real tokens."""
    result = torch.zeros_like(states)
    for image, channel in itertools.product(range(states.shape[0]), range(states.shape[2])):
        real = [states[image, token, channel].item() for token in range(states.shape[1]) if mask[image, token]]
        mean = sum(real) / len(real)
        variance = sum((value - mean) ** 2 for value in real) / len(real)
        for token in range(states.shape[1]):
            result[image, token, channel] = (states[image, token, channel] - mean) / math.sqrt(variance + EPS)
    return result


def layer_norm_by_loops(states: torch.Tensor) -> torch.Tensor:
    result = torch.zeros_like(states)
    for image, token in itertools.product(range(states.shape[0]), range(states.shape[1])):
        values = states[image, token].tolist()
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / len(values)
        result[image, token] = (states[image, token] - mean) / math.sqrt(variance + EPS)
    return result


def batch_norm_by_loops(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Normalizes each channel over the real tokens of all images."""
    result = torch.zeros_like(states)
    for channel in range(states.shape[2]):
        real = [states[b, n, channel].item() for b, n in itertools.product(*map(range, mask.shape)) if mask[b, n]]
        mean = sum(real) / len(real)
        variance = sum((value - mean) ** 2 for value in real) / len(real)
        result[..., channel] = (states[..., channel] - mean) / math.sqrt(variance + EPS)
    return result


def on_real(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states[mask.bool()]


def test_instance_norm_is_equation_6_over_real_tokens():
    states, mask = torch.randn(3, 6, 4), mask_of([6, 3, 2], 6)
    expected = on_real(instance_norm_by_loops(states, mask), mask)
    torch.testing.assert_close(on_real(InstanceNorm(4)(states, mask), mask), expected, rtol=1e-4, atol=1e-5)
    no_mask = instance_norm_by_loops(states, torch.ones(3, 6))
    torch.testing.assert_close(InstanceNorm(4)(states), no_mask, rtol=1e-4, atol=1e-5)


def test_batch_norm_is_over_the_real_tokens_of_the_batch_in_training():
    states, mask = torch.randn(3, 5, 4) * 2 + 1, mask_of([5, 2, 3], 5)
    norm = BatchNorm(4).train()
    computed = on_real(norm(states, mask), mask)
    torch.testing.assert_close(computed, on_real(batch_norm_by_loops(states, mask), mask), rtol=1e-4, atol=1e-5)
    real = on_real(states, mask)
    torch.testing.assert_close(norm.running_mean, 0.1 * real.mean(0))
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * real.var(0, correction=0))
    assert norm.num_batches_tracked == 1


def norm_by_loops(kind: str | None, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if kind is None:
        return states
    if kind == "layer":
        return layer_norm_by_loops(states)
    return {"instance": instance_norm_by_loops, "batch": batch_norm_by_loops}[kind](states, mask)


def attention_by_loops(
    module: MultiHeadAttention, states: torch.Tensor, mask: torch.Tensor, bias: torch.Tensor, norms: tuple
) -> torch.Tensor:
    """Eq. 7 and 10, one query at a time, with only the real keys."""
    query = norm_by_loops(norms[0], states @ module.q_proj.weight.T + module.q_proj.bias, mask)
    key = norm_by_loops(norms[1], states @ module.k_proj.weight.T + module.k_proj.bias, mask)
    value = states @ module.v_proj.weight.T + module.v_proj.bias
    heads = states.shape[-1] // module.head_dim
    concatenated = torch.zeros_like(states)
    for image, head, i in itertools.product(range(states.shape[0]), range(heads), range(states.shape[1])):
        part = slice(head * module.head_dim, (head + 1) * module.head_dim)
        real = [j for j in range(states.shape[1]) if mask[image, j]]
        scores = [
            (query[image, i, part] @ key[image, j, part] / math.sqrt(module.head_dim) + bias[image, head, i, j]).item()
            for j in real
        ]
        total = sum(math.exp(score) for score in scores)
        for j, score in zip(real, scores, strict=True):
            concatenated[image, i, part] += math.exp(score) / total * value[image, j, part]
    return concatenated @ module.out_proj.weight.T + module.out_proj.bias


def additive(mask: torch.Tensor) -> torch.Tensor:
    return (1 - mask.float())[:, None, None] * torch.finfo(torch.float32).min


@torch.no_grad()
@each_row("implementation", ["eager", "sdpa"])
@each_row(
    "norms", [(None, None), ("instance", None), ("layer", None), ("batch", None), (None, "instance"), ("instance",) * 2]
)
def test_self_attention_is_equation_7_with_the_bias_of_equation_10(norms, implementation):
    config = tiny_config(hidden_size=8, num_attention_heads=2)
    config._attn_implementation = implementation
    module = randomize(MultiHeadAttention(config, query_norm=norms[0], key_norm=norms[1]))
    module.attention_dropout = 0.0  # in training mode, batch norm uses the statistics of the batch
    states, mask, bias = torch.randn(2, 5, 8), mask_of([5, 3], 5), torch.randn(2, 2, 5, 5)
    computed, weights = module(states, attention_mask=additive(mask), position_bias=bias, token_mask=mask)
    expected = attention_by_loops(module, states, mask, bias, norms)
    torch.testing.assert_close(on_real(computed, mask), on_real(expected, mask), rtol=1e-4, atol=1e-5)
    assert (weights is None) == (implementation == "sdpa")
    if weights is not None:
        assert weights.shape == (2, 2, 5, 5)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 5))
        assert weights[1, :, :, 3:].max() == 0


def encoder_layer_by_loops(layer: NGSANEncoderLayer, states, geometry, mask) -> torch.Tensor:
    """Post-norm residuals around attention and a feed-forward block with ReLU."""
    bias = sum(bias_by_loops(layer.geometric_bias, states, geometry, kind) for kind in ("content", "query", "key"))
    attended = attention_by_loops(layer.self_attn, states, mask, bias, ("instance", None))
    states = layer_norm_by_loops(states + attended) * layer.self_attn_norm.weight + layer.self_attn_norm.bias
    hidden = (states @ layer.feed_forward.up.weight.T + layer.feed_forward.up.bias).clamp(min=0)
    fed = hidden @ layer.feed_forward.down.weight.T + layer.feed_forward.down.bias
    return layer_norm_by_loops(states + fed) * layer.feed_forward_norm.weight + layer.feed_forward_norm.bias


@torch.no_grad()
@each_row("implementation", ["eager", "sdpa"])
def test_encoder_is_its_equations_layer_by_layer(implementation):
    config = tiny_config(
        hidden_size=8, num_attention_heads=2, geometry_hidden_size=3, geometric_bias=["content", "query", "key"]
    )
    config._attn_implementation = implementation
    encoder = randomize(NGSANEncoder(config)).eval()
    images = random_images([4, 2])
    mask = images["attention_mask"]
    states = (images["visual_features"] @ encoder.input_proj.weight.T + encoder.input_proj.bias).clamp(min=0)
    geometry = encoder.geometry_embedding(relative_geometry(images["visual_boxes"]))
    for layer in encoder.layers:
        states = encoder_layer_by_loops(layer, states, geometry, mask)
    computed = encoder(**images).last_hidden_state
    torch.testing.assert_close(on_real(computed, mask), on_real(states, mask), rtol=1e-4, atol=1e-4)

"""The equations of the model, written out token by token and head by head."""

import math

import torch

EPSILON = 1e-5


def linear(layer: torch.nn.Linear, vector: torch.Tensor) -> torch.Tensor:
    return layer.weight @ vector + (0 if layer.bias is None else layer.bias)


def layer_norm(layer: torch.nn.LayerNorm, vector: torch.Tensor) -> torch.Tensor:
    centred = vector - vector.mean()
    return centred / math.sqrt(centred.square().mean() + EPSILON) * layer.weight + layer.bias


def embedded(model, tokens: list[int]) -> list[torch.Tensor]:
    """Section 3.4 and 3.5 of Vaswani et al. 2017; the sines come first here, then the cosines."""
    size = model.config.hidden_size
    states = []
    for place, token in enumerate(tokens):
        angles = [place / 10000 ** (2 * channel / size) for channel in range(size // 2)]
        position = torch.tensor([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])
        states.append(model.model.decoder.embed_tokens.weight[token] * math.sqrt(size) + position)
    return states


def instance_normalized(vectors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Eq. 6 of Guo et al. 2020: each channel over the positions of one text."""
    channels = []
    for values in torch.stack(vectors).T:
        variance = sum((value - values.mean()) ** 2 for value in values) / len(values)
        channels.append([(value - values.mean()) / math.sqrt(variance + EPSILON) for value in values])
    return [torch.stack([channel[place] for channel in channels]) for place in range(len(vectors))]


def attention(layer, queries: list, sources: list, is_causal: bool = False, is_normalized: bool = False) -> list:
    """Eq. 7 of Guo et al.: softmax(IN(Q) K^T / sqrt(head_dim)) V, with Q as it is where it is not normalized."""
    size = layer.head_dim
    q = [linear(layer.q_proj, state) for state in queries]
    if is_normalized:
        q = instance_normalized(q)
    k, v = ([linear(projection, state) for state in sources] for projection in (layer.k_proj, layer.v_proj))
    results = []
    for place, query in enumerate(q):
        visible = range(place + 1) if is_causal else range(len(sources))
        heads = []
        for first in range(0, len(query), size):
            part = slice(first, first + size)
            scores = [math.exp(query[part] @ k[other][part] / math.sqrt(size)) for other in visible]
            heads.append(
                sum(score / sum(scores) * v[other][part] for score, other in zip(scores, visible, strict=True))
            )
        results.append(linear(layer.out_proj, torch.cat(heads)))
    return results


def residual(norm, states: list, changes: list) -> list:
    return [layer_norm(norm, state + change) for state, change in zip(states, changes, strict=True)]


def feed_forward(layer, states: list) -> list:
    return [linear(layer.down, linear(layer.up, state).clamp(min=0)) for state in states]


@torch.no_grad()
def logits(model, source: list[int], target: list[int]) -> torch.Tensor:
    """Logits `(len(target), vocab_size)` of the token after each of the target, which begins with the start token."""
    states = embedded(model, source)
    for layer in model.model.encoder.layers:
        attended = attention(layer.self_attn, states, states, is_normalized=model.config.query_norm == "instance")
        states = residual(layer.self_attn_norm, states, attended)
        states = residual(layer.feed_forward_norm, states, feed_forward(layer.feed_forward, states))
    encoded, states = states, embedded(model, target)
    for layer in model.model.decoder.layers:
        states = residual(layer.self_attn_norm, states, attention(layer.self_attn, states, states, is_causal=True))
        states = residual(layer.encoder_attn_norm, states, attention(layer.encoder_attn, states, encoded))
        states = residual(layer.feed_forward_norm, states, feed_forward(layer.feed_forward, states))
    return torch.stack([model.model.decoder.embed_tokens.weight @ state for state in states])

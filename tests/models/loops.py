"""The decoder of words and the spatial captioner, written with loops over queries and keys, for comparison.

Every attention gets only the keys to which its query may attend; their number is d_len of eq. 2 of
Springenberg et al. 2018. There are no batches, no masks and no caches.
"""

import math

import torch

from tests.models.test_attention import layer_norm_by_loops


def sinusoid(position: int, size: int) -> torch.Tensor:
    angles = [position / 10000 ** (2 * pair / size) for pair in range(size // 2)]
    return torch.tensor([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])


def linear(module: torch.nn.Linear, states: torch.Tensor) -> torch.Tensor:
    result = module.weight @ states
    return result if module.bias is None else result + module.bias


def attend(
    module, query: torch.Tensor, keys: list[torch.Tensor], temperature: str = "head_dim", projected=None, bias=None
) -> tuple[torch.Tensor, list]:
    """Eq. 1-3: one query `(hidden_size,)` over its keys; the output and the weights, `[head][key]`.

    The query may be projected already, and `bias[head][key]` is added to the scores.
    """
    heads, size = module.config.num_attention_heads, module.head_dim
    tau = math.sqrt((len(keys) if temperature == "key_length" else 0) + size)
    projected = linear(module.q_proj, query) if projected is None else projected
    outputs, maps = [], []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = [(projected[part] @ linear(module.k_proj, key)[part]).item() / tau for key in keys]
        weights = softmax(scores if bias is None else [score + b for score, b in zip(scores, bias[head], strict=True)])
        pairs = zip(weights, keys, strict=True)
        outputs.append(sum(weight * linear(module.v_proj, key)[part] for weight, key in pairs))
        maps.append(weights)
    return linear(module.out_proj, torch.cat(outputs)), maps


def softmax(scores: list[float]) -> list[float]:
    exponentials = [math.exp(score) for score in scores]
    return [value / sum(exponentials) for value in exponentials]


def normalize(norm: torch.nn.LayerNorm, states: torch.Tensor) -> torch.Tensor:
    return layer_norm_by_loops(states[None, None])[0, 0] * norm.weight + norm.bias


def feed(layer, states: torch.Tensor) -> torch.Tensor:
    """Eq. 4 with its residual connection."""
    fed = linear(layer.feed_forward.down, linear(layer.feed_forward.up, states).clamp(min=0))
    return normalize(layer.feed_forward_norm, fed + states)


@torch.no_grad()
def encode(model, features: torch.Tensor) -> list[torch.Tensor]:
    """Section 2.1: encodes features `(num_cells, visual_feature_size)` as the same number of cells."""
    encoder, config = model.model.encoder, model.config
    cells = [linear(encoder.input_proj, cell) if encoder.input_proj else cell for cell in features]
    cells = [cell + sinusoid(position, config.hidden_size) for position, cell in enumerate(cells)]
    for layer in encoder.layers:
        attended = [attend(layer.self_attn, cell, cells, config.attention_temperature)[0] for cell in cells]
        pairs = zip(cells, attended, strict=True)
        cells = [feed(layer, normalize(layer.self_attn_norm, cell + result)) for cell, result in pairs]
    return cells


def embed(decoder, words: list[int]) -> list[torch.Tensor]:
    """Sections 3.4 and 3.5 of Vaswani et al. 2017; here the sines come first, then the cosines."""
    size = decoder.config.hidden_size
    return [
        decoder.embed_tokens.weight[word] * math.sqrt(size) + sinusoid(position, size)
        for position, word in enumerate(words)
    ]


@torch.no_grad()
def decode(decoder, words: list[int], cells: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Section 2.2: states `(length, hidden_size)`, and the maps of all words `(layers, heads, length, num_cells)`."""
    states, temperature, maps = embed(decoder, words), getattr(decoder.config, "attention_temperature", "head_dim"), []
    for layer in decoder.layers:
        following, word_weights = [], []
        for position, state in enumerate(states):
            attended, _ = attend(layer.self_attn, state, states[: position + 1], temperature)
            state = normalize(layer.self_attn_norm, state + attended)
            attended, weights = attend(layer.encoder_attn, state, cells, temperature)
            following.append(feed(layer, normalize(layer.encoder_attn_norm, state + attended)))
            word_weights.append(weights)
        states = following
        maps.append(torch.tensor(word_weights).transpose(0, 1))
    return torch.stack(states), torch.stack(maps)


def caption(model, words: list[int], features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and maps of the words so far, for the features of an image `(num_cells, visual_feature_size)`."""
    states, maps = decode(model.model.decoder, words, encode(model, features))
    return torch.stack([linear(model.lm_head, state) for state in states]), maps

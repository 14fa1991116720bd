"""MCAN written with loops over questions and regions, for comparison."""

import math

import torch

from tests.models.loops import attend, linear, softmax


def normalized(norm, state):
    mean = sum(state) / len(state)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in state.tolist()) / (len(state) - 1))
    return norm.weight * (state - mean) / (deviation + norm.eps) + norm.bias


def attended(layer, name, queries, keys, bias=None):
    """Queries after attention to keys, with their residual connection; `bias[q][head][k]` is added to the scores."""
    module, norm = getattr(layer, name), getattr(layer, f"{name}_norm")
    biases = [None] * len(queries) if bias is None else bias
    pairs = zip(queries, biases, strict=True)
    return [normalized(norm, query + attend(module, query, keys, bias=query_bias)[0]) for query, query_bias in pairs]


def fed_forward(layer, state):
    inner = linear(layer.feed_forward.up, state).relu()
    return normalized(layer.feed_forward_norm, state + linear(layer.feed_forward.down, inner))


def query_bias(decoder, layer, states, boxes):
    """Eq. 8, 9 and 12: `bias[i][head][j]` = Q'_i . ReLU(FC(f_ij))."""
    module, rows = layer.geometric_bias, []
    for state, box in zip(states, boxes, strict=True):
        pairs = []
        for other in boxes:
            size, other_size = box[2:] - box[:2], other[2:] - other[:2]
            distance = ((other[2:] + other[:2] - box[2:] - box[:2]).abs() / 2 / size).clamp(min=1e-3)
            features = torch.cat([distance.log(), (size / other_size).log()])
            pairs.append(linear(decoder.geometry_embedding.projection, features).relu())
        queries = linear(module.query_proj, state).chunk(module.num_heads)
        rows.append([[float(query @ pair) for pair in pairs] for query in queries])
    return rows


def reduced(module, states):
    scores = [linear(module.scores, linear(module.hidden, state).relu()) for state in states]
    sums = []
    for glimpse in range(len(scores[0])):
        weights = softmax([float(score[glimpse]) for score in scores])
        sums.append(sum(weight * state for weight, state in zip(weights, states, strict=True)))
    return linear(module.out_proj, torch.cat(sums))


def logits_of(model, ids, features, boxes):
    """Logits of one question `(T,)` about one image `(N, D)`, without padding."""
    mcan = model.model
    words = list(mcan.encoder.lstm(mcan.encoder.embed_tokens(ids)[None])[0][0])
    for layer in mcan.encoder.layers:
        words = [fed_forward(layer, word) for word in attended(layer, "self_attn", words, words)]
    regions = [linear(mcan.decoder.input_proj, feature) for feature in features]
    for layer in mcan.decoder.layers:
        bias = None if layer.geometric_bias is None else query_bias(mcan.decoder, layer, regions, boxes)
        regions = attended(layer, "self_attn", regions, regions, bias)
        regions = [fed_forward(layer, region) for region in attended(layer, "encoder_attn", regions, words)]
    fused = reduced(mcan.question_reduction, words) + reduced(mcan.image_reduction, regions)
    return linear(model.classifier, normalized(mcan.norm, fused))

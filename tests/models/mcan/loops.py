"""MCAN written with loops, one question and one region at a time, to compare with."""

import math

import torch


def normalized(state, norm):
    mean = sum(state) / len(state)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in state.tolist()) / (len(state) - 1))
    return norm.weight * (state - mean) / (deviation + norm.eps) + norm.bias


def softmax(scores):
    largest = max(scores)
    exponentials = [math.exp(score - largest) for score in scores]
    return [value / sum(exponentials) for value in exponentials]


def attended(module, queries, keys, bias=None):
    """Attention of queries `(Q, d)` to keys `(K, d)`; `bias[head][q][k]` is added to the scores."""
    size, rows = module.head_dim, []
    for place, query in enumerate(queries):
        heads = []
        for head in range(len(query) // size):
            part = slice(head * size, (head + 1) * size)
            q = module.q_proj(query)[part]
            scores = [float(q @ module.k_proj(key)[part]) / math.sqrt(size) for key in keys]
            if bias is not None:
                scores = [score + bias[head][place][k] for k, score in enumerate(scores)]
            values = [module.v_proj(key)[part] for key in keys]
            heads.append(sum(weight * value for weight, value in zip(softmax(scores), values, strict=True)))
        rows.append(module.out_proj(torch.cat(heads)))
    return rows


def fed_forward(layer, state):
    inner = torch.relu(layer.feed_forward.up(state))
    return normalized(state + layer.feed_forward.down(inner), layer.feed_forward_norm)


def relative_log_geometry(box, other):
    """Eq. 8 of Guo et al. 2020 for the pair (i, j), with the clamp of the distances."""
    (x1, y1, x2, y2), (u1, v1, u2, v2) = box, other
    width, height, center_x, center_y = x2 - x1, y2 - y1, (x1 + x2) / 2, (y1 + y2) / 2
    return [
        math.log(max(abs((u1 + u2) / 2 - center_x) / width, 1e-3)),
        math.log(max(abs((v1 + v2) / 2 - center_y) / height, 1e-3)),
        math.log(width / (u2 - u1)),
        math.log(height / (v2 - v1)),
    ]


def query_bias(decoder, layer, states, boxes):
    """Eq. 9 and 12: `bias[head][i][j]` = Q'_i . ReLU(FC(f_ij))."""
    module, heads = layer.geometric_bias, layer.geometric_bias.num_heads
    rows = [[[0.0] * len(states) for _ in states] for _ in range(heads)]
    for i, state in enumerate(states):
        queries = module.query_proj(state).chunk(heads)
        for j in range(len(states)):
            pair = torch.tensor(relative_log_geometry(boxes[i].tolist(), boxes[j].tolist()))
            embedded = torch.relu(decoder.geometry_embedding.projection(pair))
            for head in range(heads):
                rows[head][i][j] = float(queries[head] @ embedded)
    return rows


def reduced(module, states):
    scores = [module.scores(torch.relu(module.hidden(state))) for state in states]
    sums = []
    for glimpse in range(len(scores[0])):
        weights = softmax([float(score[glimpse]) for score in scores])
        sums.append(sum(weight * state for weight, state in zip(weights, states, strict=True)))
    return module.out_proj(torch.cat(sums))


def logits_of(model, ids, features, boxes):
    """Logits of one question `(T,)` about one image `(N, D)`, without padding."""
    mcan = model.model
    words = list(mcan.encoder.lstm(mcan.encoder.embed_tokens(ids)[None])[0][0])
    for layer in mcan.encoder.layers:
        updates = attended(layer.self_attn, words, words)
        words = [normalized(word + one, layer.self_attn_norm) for word, one in zip(words, updates, strict=True)]
        words = [fed_forward(layer, word) for word in words]
    regions = [mcan.decoder.input_proj(feature) for feature in features]
    for layer in mcan.decoder.layers:
        bias = None if layer.geometric_bias is None else query_bias(mcan.decoder, layer, regions, boxes)
        updates = attended(layer.self_attn, regions, regions, bias)
        regions = [normalized(one + more, layer.self_attn_norm) for one, more in zip(regions, updates, strict=True)]
        updates = attended(layer.encoder_attn, regions, words)
        regions = [normalized(one + more, layer.encoder_attn_norm) for one, more in zip(regions, updates, strict=True)]
        regions = [fed_forward(layer, region) for region in regions]
    fused = reduced(mcan.question_reduction, words) + reduced(mcan.image_reduction, regions)
    return model.classifier(normalized(fused, mcan.norm))

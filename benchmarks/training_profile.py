"""Time of the parts of a training step of NG-SAN on a CPU: parts of the forward pass, the backward pass, the update.

The steps are those of teacher forcing: 10 images with 5 captions of 12 words each, in float32, on random features of
the demo's size (scenes, 6 regions) or of the packaged captioner of photographs (121 cells of 352 channels). "Floor" is
the time of only the matrix products of the linear layers, forward and backward.

    python benchmarks/training_profile.py
    python benchmarks/training_profile.py --threads 2 --steps 50
"""

import argparse
import itertools
import statistics
import time

import torch
from decoding import linear_shapes, timed

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration

IMAGES, CAPTIONS, WORDS = 10, 5, 12
MODELS = {
    "scenes": {
        "vocab_size": 60,
        "visual_feature_size": 22,
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_hidden_layers": 1,
        "num_attention_heads": 16,
        "geometric_bias": ["query", "key"],
        "regions": 6,
    },
    "photographs": {
        "vocab_size": 2600,
        "visual_feature_size": 352,
        "hidden_size": 192,
        "intermediate_size": 576,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "regions": 121,
    },
}


def profile(sizes: dict, steps: int) -> tuple[dict[str, float], float]:
    """Returns the median milliseconds of each part of a step, and of only the matrix products."""
    regions = sizes.pop("regions")
    torch.manual_seed(0)
    model = NGSANForConditionalGeneration(NGSANConfig(**sizes)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    corners = torch.rand(IMAGES, regions, 2) / 2
    batch = {
        "visual_features": torch.rand(IMAGES, regions, sizes["visual_feature_size"]),
        "visual_boxes": torch.cat([corners, corners + 0.3], dim=-1),
        "labels": torch.randint(4, sizes["vocab_size"], (IMAGES * CAPTIONS, WORDS)),
    }
    took: list[dict[str, float]] = []
    for _ in range(steps):
        marks = [time.perf_counter()]
        with timed(model) as parts:
            loss = model(**batch).loss
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        marks.append(time.perf_counter())
        forward, backward, update = (later - earlier for earlier, later in itertools.pairwise(marks))
        rest = forward - sum(parts.values())
        took.append({**parts, "rest of the forward pass": rest, "backward": backward, "clipping and Adam": update})
    with linear_shapes(model) as shapes:
        model(**batch)
    rows = [(torch.rand(number, module.in_features, requires_grad=True), module) for number, module in shapes]
    floor = []
    for _ in range(steps):
        started_at = time.perf_counter()
        for states, module in rows:
            module(states).sum().backward()
        floor.append(time.perf_counter() - started_at)
    medians = {name: 1000 * statistics.median(times[name] for times in took) for name in took[0]}
    return medians, 1000 * statistics.median(floor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    profiles = {name: profile(dict(sizes), options.steps) for name, sizes in MODELS.items()}
    print(f"| part, {options.threads} threads | {' | '.join(f'{name}, ms | share' for name in profiles)} |")
    print(f"| --- |{' --- | --- |' * len(profiles)}")
    wholes = {name: sum(parts.values()) for name, (parts, _) in profiles.items()}
    for part in next(iter(profiles.values()))[0]:
        cells = [f"{parts[part]:.1f} | {parts[part] / wholes[name]:.0%}" for name, (parts, _) in profiles.items()]
        print(f"| {part} | {' | '.join(cells)} |")
    floors = [f"{floor:.1f} | {floor / wholes[name]:.0%}" for name, (_, floor) in profiles.items()]
    print(f"| floor | {' | '.join(floors)} |")


if __name__ == "__main__":
    main()

"""Beam search of NG-SAN at paper size, by part, and against a search whose beams do not share the states of images.

The model has random weights (d = 512, L = 6, 9,487 words), 50 regions and captions of 16 words. The other search is the
default of transformers: it repeats the encoder's states for every beam, computes keys and values of all of them, and
reorders them at each step. Both take turns in one process. "Floor" is the time of only the matrix products of the same
sizes.

    python benchmarks/decoding.py
    python benchmarks/decoding.py --batch 32 --beams 1 --rounds 5
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers.generation import GenerationMixin
from transformers.utils import logging

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration
from hf_ngsan.models.captioning import WordGenerationMixin

REQUIRED = 1.5
SIZES = {"vocab_size": 9487, "visual_feature_size": 2048, "hidden_size": 512, "num_hidden_layers": 6}
REGIONS, WORDS = 50, 16
OVERRIDDEN = ("_expand_inputs_for_generation", "_prepare_cache_for_generation")
PARTS = {
    "encoder": lambda model: [model.model.encoder],
    "self-attention": lambda model: [layer.self_attn for layer in model.model.decoder.layers],
    "cross-attention": lambda model: [layer.encoder_attn for layer in model.model.decoder.layers],
    "feed-forward": lambda model: [layer.feed_forward for layer in model.model.decoder.layers],
    "vocabulary": lambda model: [model.lm_head],
}


@contextmanager
def unshared_states() -> Iterator[None]:
    """Gives beams copies of the states of their image inside the `with` block."""
    functions = {name: vars(WordGenerationMixin)[name] for name in OVERRIDDEN}
    for name in OVERRIDDEN:
        setattr(WordGenerationMixin, name, getattr(GenerationMixin, name))
    try:
        yield
    finally:
        for name, function in functions.items():
            setattr(WordGenerationMixin, name, function)


@contextmanager
def timed(model: nn.Module) -> Iterator[dict[str, float]]:
    """Yields the seconds of the forward pass of each part of `PARTS` inside the `with` block."""
    seconds = dict.fromkeys(PARTS, 0.0)
    handles = []

    def watch(name: str, module: nn.Module) -> None:
        started_at = [0.0]

        def before(*inputs: object) -> None:
            started_at[0] = time.perf_counter()

        def after(*inputs: object) -> None:
            seconds[name] += time.perf_counter() - started_at[0]

        handles.extend([module.register_forward_pre_hook(before), module.register_forward_hook(after)])

    for name, modules in PARTS.items():
        for module in modules(model):
            watch(name, module)
    try:
        yield seconds
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def linear_shapes(model: nn.Module) -> Iterator[list[tuple[int, nn.Linear]]]:
    """Yields the linear layers that run inside the `with` block, with their numbers of rows."""
    shapes: list[tuple[int, nn.Linear]] = []

    def record(module: nn.Linear, inputs: tuple, output: torch.Tensor) -> None:
        shapes.append((output.numel() // output.shape[-1], module))

    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    handles = [module.register_forward_hook(record) for module in linears]
    try:
        yield shapes
    finally:
        for handle in handles:
            handle.remove()


def seconds_of(work: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    work()
    return time.perf_counter() - started_at


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=10, help="images (%(default)s)")
    parser.add_argument("--beams", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    torch.manual_seed(0)
    model = NGSANForConditionalGeneration(NGSANConfig(**SIZES)).eval()
    with torch.no_grad():  # so that no caption ends early
        model.lm_head.bias[model.config.eos_token_id] -= 100
    corners = torch.rand(options.batch, REGIONS, 2) / 2
    inputs = {
        "visual_features": torch.rand(options.batch, REGIONS, SIZES["visual_feature_size"]),
        "visual_boxes": torch.cat([corners, corners + 0.3], dim=-1),
    }

    def search() -> torch.Tensor:
        return model.generate(**inputs, num_beams=options.beams, max_new_tokens=WORDS)

    with unshared_states():
        expected = search()
    assert torch.equal(search(), expected)
    with linear_shapes(model) as shapes:
        search()
    rows = [(torch.rand(number, module.in_features), module) for number, module in shapes]

    @torch.inference_mode()
    def multiply() -> None:
        for states, module in rows:
            module(states)

    took: dict[str, list[float]] = {"unshared": [], "shared": [], "floor": []}
    for _ in range(options.rounds):
        with unshared_states():
            took["unshared"].append(seconds_of(search))
        took["shared"].append(seconds_of(search))
        took["floor"].append(seconds_of(multiply))
    with timed(model) as parts:
        total = seconds_of(search)
    print(f"{options.batch} images, {options.beams} beams, {WORDS} words, {options.threads} threads\n")
    print("| part | ms | share |\n| --- | --- | --- |")
    for name, seconds in {**parts, "everything else": total - sum(parts.values())}.items():
        print(f"| {name} | {1000 * seconds:.0f} | {seconds / total:.0%} |")
    ratios = {
        "states of an image repeated for each beam / shared": [
            old / new for old, new in zip(took["unshared"], took["shared"], strict=True)
        ],
        "shared / floor": [shared / least for shared, least in zip(took["shared"], took["floor"], strict=True)],
    }
    print()
    for name, values in ratios.items():
        print(f"{name}: {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
    reached = statistics.median(next(iter(ratios.values())))
    print(f"required: at least {REQUIRED}; {'reached' if reached >= REQUIRED else 'missed'}")
    return 0 if reached >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())

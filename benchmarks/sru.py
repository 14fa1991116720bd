"""Speed of the SRU, forward and backward, against a Python loop over time steps.

The loop follows the equations: each step multiplies its words with the weights, and autograd computes the gradients. A
second loop computes the products of all steps at once, as this package does, and loops only over the recurrence. All
three compute the same outputs and gradients from the same weights in turn; the result is the ratio of each round.

    python benchmarks/sru.py --threads 2 --repeats 5
"""

import argparse
import statistics
import time

import torch

from hf_ngsan.models.modeling_mhsan_text import SRU

REQUIRED_RATIO = 2


def looped(sru, words, products_together):
    """Returns the outputs of a unidirectional SRU with tanh, computed by a loop over time steps."""
    states = list(words.unbind(1))
    for layer in sru.layers:
        if products_together:
            products = layer.projection(torch.stack(states)).unbind(0)
        memory = torch.zeros(len(words), layer.output_size)
        outputs = []
        for step, state in enumerate(states):
            product = products[step] if products_together else layer.projection(state)
            candidate, forget, reset, *skip = product.split(layer.output_size, dim=-1)
            skip = skip[0] if skip else state * layer.scale_x
            forget = torch.sigmoid(forget + layer.peephole[0] * memory + layer.bias[0])
            reset = torch.sigmoid(reset + layer.peephole[1] * memory + layer.bias[1])
            memory = forget * memory + (1 - forget) * candidate
            outputs.append(reset * torch.tanh(memory) + (1 - reset) * skip)
        states = outputs
    return torch.stack(states, dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden-size", type=int, default=2400)
    parser.add_argument("--input-size", type=int, default=620)
    parser.add_argument("--captions", type=int, default=32)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    sru = SRU(args.input_size, args.hidden_size, args.layers, activation="tanh")
    words = torch.randn(args.captions, args.words, args.input_size)
    ways = {
        "loop": lambda: looped(sru, words, products_together=False),
        "loop over recurrence": lambda: looped(sru, words, products_together=True),
        "ours": lambda: sru(words)[0],
    }
    times = {name: [] for name in ways}
    results = {}
    for repeat in range(args.repeats + 1):
        for name, compute in ways.items():
            sru.zero_grad()
            start = time.perf_counter()
            outputs = compute()
            outputs.square().mean().backward()
            if repeat:  # the first round warms up
                times[name].append(time.perf_counter() - start)
            results[name] = [outputs.detach(), *(parameter.grad for parameter in sru.parameters())]

    print(
        f"{args.layers} layers of size {args.hidden_size}, {args.captions} x {args.words} words, {args.threads} threads"
    )
    for name, seconds in times.items():
        print(f"{name:<22}{statistics.median(seconds):9.3f} s   ({min(seconds):.3f} to {max(seconds):.3f})")
    for name, required in (("loop", f"   required: at least {REQUIRED_RATIO}"), ("loop over recurrence", "")):
        ratios = [a / b for a, b in zip(times[name], times["ours"], strict=True)]
        median = statistics.median(ratios)
        print(f"{'ratio to ' + name:<31}{median:.2f}   ({min(ratios):.2f} to {max(ratios):.2f}){required}")
    difference = max(
        (value - other).abs().max().item() / other.abs().max().item()
        for value, other in zip(results["ours"], results["loop"], strict=True)
    )
    print(f"largest difference of outputs and gradients, as a share of the largest value: {difference:.1e}")


if __name__ == "__main__":
    main()

"""A training step of the Transformer with normalized self-attention in its encoder against one without.

A step is forward, backward and Adam in train mode on one batch of padded random sentences. Steps of the two models take
turns in one process, and the ratio is taken pair by pair; on a CPU it is processor time, which other work on the
machine disturbs little.

    python benchmarks/translation_step.py
    python benchmarks/translation_step.py --hidden-size 256 --layers 3 --intermediate-size 512 --pairs 30
"""

import argparse
import statistics
import time

import torch

from hf_ngsan import NSATransformerConfig, NSATransformerForConditionalGeneration

MODELS = {"Transformer": {"query_norm": None}, "NSA": {"query_norm": "instance"}}
TIME_LIMIT = 1.10


class TrainingStep:
    """A model, its optimizer and one batch; calling it takes a step."""

    def __init__(self, name: str, sizes: argparse.Namespace):
        torch.manual_seed(0)
        config = NSATransformerConfig(
            vocab_size=sizes.vocabulary,
            hidden_size=sizes.hidden_size,
            intermediate_size=sizes.intermediate_size,
            num_hidden_layers=sizes.layers,
            **MODELS[name],
        )
        self.device = torch.device(sizes.device)
        self.model = NSATransformerForConditionalGeneration(config).to(self.device).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        lengths = torch.randint(sizes.tokens // 2, sizes.tokens + 1, (sizes.sentences, 1))
        mask = (torch.arange(sizes.tokens) < lengths).long()
        source, target = torch.randint(4, sizes.vocabulary, (2, sizes.sentences, sizes.tokens))
        batch = {"input_ids": source * mask, "attention_mask": mask, "labels": target.masked_fill(mask == 0, -100)}
        self.batch = {key: tensor.to(self.device) for key, tensor in batch.items()}

    def __call__(self) -> None:
        self.model(**self.batch).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def seconds(self) -> float:
        clock = time.process_time
        if self.device.type == "cuda":
            clock = time.perf_counter
            torch.cuda.synchronize()
        start = clock()
        self()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return clock() - start


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=32, help="of a batch")
    parser.add_argument("--tokens", type=int, default=32, help="of the longest sentence; the shortest has half")
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--intermediate-size", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--pairs", type=int, default=9, help="of timed steps, after one that is not timed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def describe(values: list[float]) -> str:
    return f"{statistics.median(values):7.3f}   ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    sizes = parse_arguments()
    torch.set_num_threads(sizes.threads)
    steps = {name: TrainingStep(name, sizes) for name in MODELS}
    seconds: dict[str, list[float]] = {name: [] for name in MODELS}
    for step in steps.values():
        step()
    for pair in range(sizes.pairs):
        for name in list(MODELS)[:: 1 if pair % 2 else -1]:
            seconds[name].append(steps[name].seconds())
    print(f"median of {sizes.pairs} pairs of steps (smallest to largest)")
    for name in MODELS:
        print(f"{name:<13}{describe(seconds[name])} s")
    ratios = [ours / theirs for theirs, ours in zip(*seconds.values(), strict=True)]
    print(f"{'ratio':<13}{describe(ratios)}   required: at most {TIME_LIMIT}")


if __name__ == "__main__":
    main()

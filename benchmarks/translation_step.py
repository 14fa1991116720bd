"""A training step of the Transformer with normalized self-attention in its encoder against one without.

A step is forward, backward and Adam in train mode on one batch of padded random sentences. Steps of the two models take
turns in one process, and the result is the ratio of each pair; on a CPU, times are processor times.

    python benchmarks/translation_step.py
    python benchmarks/translation_step.py --hidden-size 256 --layers 3 --intermediate-size 512 --pairs 30
"""

import argparse

import torch
from paired_steps import TrainingStep, describe, in_turns, ratios

from hf_ngsan import NSATransformerConfig, NSATransformerForConditionalGeneration

MODELS = {"Transformer": {"query_norm": None}, "NSA": {"query_norm": "instance"}}
TIME_LIMIT = 1.10


def training_step(name: str, sizes: argparse.Namespace) -> TrainingStep:
    torch.manual_seed(0)
    config = NSATransformerConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        num_hidden_layers=sizes.layers,
        **MODELS[name],
    )
    model = NSATransformerForConditionalGeneration(config)
    lengths = torch.randint(sizes.tokens // 2, sizes.tokens + 1, (sizes.sentences, 1))
    mask = (torch.arange(sizes.tokens) < lengths).long()
    source, target = torch.randint(4, sizes.vocabulary, (2, sizes.sentences, sizes.tokens))
    batch = {"input_ids": source * mask, "attention_mask": mask, "labels": target.masked_fill(mask == 0, -100)}
    return TrainingStep(model, batch, sizes.device)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=32, help="of a batch")
    parser.add_argument(
        "--tokens", type=int, default=32, help="tokens of the longest sentence; the shortest has half (%(default)s)"
    )
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--intermediate-size", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument(
        "--pairs", type=int, default=9, help="pairs of timed steps, after one that is not timed (%(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args()


def main() -> None:
    sizes = parse_arguments()
    torch.set_num_threads(sizes.threads)
    seconds = in_turns({name: training_step(name, sizes).seconds for name in MODELS}, sizes.pairs)
    print(f"median of {sizes.pairs} pairs of steps (smallest to largest)")
    for name in MODELS:
        print(f"{name:<13}{describe(seconds[name])} s")
    print(f"{'ratio':<13}{describe(ratios(seconds))}   required: at most {TIME_LIMIT}")


if __name__ == "__main__":
    main()

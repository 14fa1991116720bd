"""The one-layer video captioner of table 7, with and without NSA: parameters, training steps, captions per second.

A step is forward, backward and Adam in train mode on a batch of videos with ten captions each. Steps of the two models
take turns in one process, and the result is the ratio of each pair; times are processor time. Captions are decoded
greedily to their full length by models with random weights.

    python benchmarks/video.py
    python benchmarks/video.py --videos 10 --pairs 20
"""

import argparse
import time
from functools import partial

import torch
from paired_steps import TrainingStep, describe, in_turns, ratios

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration

MODELS = {"Transformer": {"query_norm": None}, "+ NSA": {"query_norm": "instance"}}


def training_step(name: str, sizes: argparse.Namespace) -> TrainingStep:
    torch.manual_seed(0)
    config = NGSANConfig(
        vocab_size=sizes.vocabulary,
        visual_feature_size=sizes.feature_size,
        num_hidden_layers=1,
        geometric_bias=[],
        **MODELS[name],
    )
    model = NGSANForConditionalGeneration(config)
    batch = {
        "visual_features": torch.rand(sizes.videos, sizes.frames, sizes.feature_size),
        "attention_mask": torch.ones(sizes.videos, sizes.frames, dtype=torch.long),
        "labels": torch.randint(4, sizes.vocabulary, (sizes.videos * sizes.captions, sizes.words)),
    }
    return TrainingStep(model, batch)


def captions_per_second(step: TrainingStep) -> float:
    frames = {name: tensor for name, tensor in step.batch.items() if name != "labels"}
    options = {
        "suppress_tokens": [step.model.config.eos_token_id],
        "max_new_tokens": step.batch["labels"].shape[1],
    }
    start = time.process_time()
    captions = step.model.eval().generate(**frames, **options)
    return len(captions) / (time.process_time() - start)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=50, help="of a batch")
    parser.add_argument("--captions", type=int, default=10, help="of each video")
    parser.add_argument("--frames", type=int, default=32, help="of each video")
    parser.add_argument("--words", type=int, default=17, help="words of each caption, including its end")
    parser.add_argument("--feature-size", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument(
        "--pairs", type=int, default=7, help="pairs of timed steps, after one that is not timed (%(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    sizes = parse_arguments()
    torch.set_num_threads(sizes.threads)
    steps = {name: training_step(name, sizes) for name in MODELS}
    seconds = in_turns({name: step.seconds for name, step in steps.items()}, sizes.pairs)
    speeds = in_turns({name: partial(captions_per_second, step) for name, step in steps.items()}, sizes.pairs)
    print(f"medians of {sizes.pairs} (smallest to largest), {sizes.threads} CPU thread(s)")
    for name, step in steps.items():
        print(f"{name:<12}{step.model.num_parameters():>12,} parameters")
        print(f"{'':<12}{describe(seconds[name])} s per step of {sizes.videos} videos, {sizes.captions} captions each")
        print(f"{'':<12}{describe(speeds[name])} captions per second")
    print(f"{'step, ratio':<12}{describe(ratios(seconds))}")


if __name__ == "__main__":
    main()

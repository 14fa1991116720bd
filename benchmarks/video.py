"""The one-layer video captioner of table 7, with and without NSA: parameters, training steps, captions a second.

A step is forward, backward and Adam in train mode on a batch of videos with ten captions each. Steps of the two models
take turns in one process, and the ratio is taken pair by pair; on a CPU times are processor time, which other work on
the machine disturbs little. Captions are decoded greedily to their full length by models with random weights.

    python benchmarks/video.py
    python benchmarks/video.py --videos 10 --pairs 20
"""

import argparse
import statistics
import time

import torch

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration
from hf_ngsan.training.run import count_parameters

MODELS = {"Transformer": {"query_norm": None}, "+ NSA": {"query_norm": "instance"}}


class Captioner:
    """A model, its optimizer and one batch."""

    def __init__(self, name: str, sizes: argparse.Namespace):
        torch.manual_seed(0)
        config = NGSANConfig(
            vocab_size=sizes.vocabulary,
            visual_feature_size=sizes.feature_size,
            num_hidden_layers=1,
            geometric_bias=[],
            **MODELS[name],
        )
        self.model = NGSANForConditionalGeneration(config)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.frames = {
            "visual_features": torch.rand(sizes.videos, sizes.frames, sizes.feature_size),
            "attention_mask": torch.ones(sizes.videos, sizes.frames, dtype=torch.long),
        }
        self.labels = torch.randint(4, sizes.vocabulary, (sizes.videos * sizes.captions, sizes.words))
        self.words = sizes.words

    def step(self) -> float:
        """Returns the processor time of a training step in seconds."""
        start = time.process_time()
        self.model.train()(**self.frames, labels=self.labels).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.process_time() - start

    def captions_per_second(self) -> float:
        start = time.process_time()
        options = {"suppress_tokens": [self.model.config.eos_token_id], "max_new_tokens": self.words}
        captions = self.model.eval().generate(**self.frames, **options)
        return len(captions) / (time.process_time() - start)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=50, help="of a batch")
    parser.add_argument("--captions", type=int, default=10, help="of each video")
    parser.add_argument("--frames", type=int, default=32, help="of each video")
    parser.add_argument("--words", type=int, default=17, help="of each caption, with its end")
    parser.add_argument("--feature-size", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=7, help="of timed steps, after one that is not timed")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def describe(values: list[float]) -> str:
    return f"{statistics.median(values):8.3f} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    sizes = parse_arguments()
    torch.set_num_threads(sizes.threads)
    captioners = {name: Captioner(name, sizes) for name in MODELS}
    seconds: dict[str, list[float]] = {name: [] for name in MODELS}
    speeds: dict[str, list[float]] = {name: [] for name in MODELS}
    for captioner in captioners.values():
        captioner.step()
        captioner.captions_per_second()
    for pair in range(sizes.pairs):
        for name in list(MODELS)[:: 1 if pair % 2 else -1]:
            seconds[name].append(captioners[name].step())
            speeds[name].append(captioners[name].captions_per_second())
    print(f"medians of {sizes.pairs} (smallest to largest), {sizes.threads} CPU thread(s)")
    for name, captioner in captioners.items():
        print(f"{name:<12}{count_parameters(captioner.model):>12,} parameters")
        print(f"{'':<12}{describe(seconds[name])} s a step of {sizes.videos} videos, {sizes.captions} captions each")
        print(f"{'':<12}{describe(speeds[name])} captions a second")
    ratios = [ours / theirs for theirs, ours in zip(*seconds.values(), strict=True)]
    print(f"{'step, ratio':<12}{describe(ratios)}")


if __name__ == "__main__":
    main()

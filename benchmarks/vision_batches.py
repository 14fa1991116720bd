"""Milliseconds a photograph of EfficientNet-Lite2, by batch size, against a pass without folded normalization.

The reference computes convolution, normalization and activation one after the other, on the whole batch. Both take
turns, on one thread by default, with random weights; ratios are taken round by round.

    python benchmarks/vision_batches.py
    python benchmarks/vision_batches.py --side 260 --batches 1 8 32 --rounds 5
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hf_ngsan.models import convolutional_backbone, modeling_efficientnet_lite
from hf_ngsan.models.configuration_efficientnet_lite import NGSANEfficientNetLiteConfig
from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone


@contextmanager
def step_by_step() -> Iterator[None]:
    """Computes as in training inside the `with` block."""
    for module in (convolutional_backbone, modeling_efficientnet_lite):
        module.is_inference = lambda: False
    try:
        yield
    finally:
        for module in (convolutional_backbone, modeling_efficientnet_lite):
            module.is_inference = ORIGINAL


ORIGINAL = convolutional_backbone.is_inference


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", default="efficientnet-lite2")
    parser.add_argument("--side", type=int, default=352, help="of images, in pixels")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 20])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


@torch.inference_mode()
def milliseconds(backbone: torch.nn.Module, images: torch.Tensor) -> float:
    started_at = time.perf_counter()
    backbone(images)
    return 1000 * (time.perf_counter() - started_at) / len(images)


def main() -> None:
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    backbone = NGSANEfficientNetLiteBackbone(NGSANEfficientNetLiteConfig.from_variant(options.variant)).eval()
    layout = {"memory_format": torch.channels_last}  # as a vision encoder hands them over
    print("| batch | step by step, ms | folded, ms | ratio |\n| --- | --- | --- | --- |")
    for size in options.batches:
        images = torch.randn(size, 3, options.side, options.side).to(**layout)
        with torch.inference_mode():
            folded = backbone(images).feature_maps[0]
            with step_by_step():
                torch.testing.assert_close(backbone(images).feature_maps[0], folded, rtol=1e-4, atol=1e-5)
        plain, fast = [], []
        for _ in range(options.rounds):
            with step_by_step():
                plain.append(milliseconds(backbone, images))
            fast.append(milliseconds(backbone, images))
        ratios = sorted(new / old for new, old in zip(fast, plain, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {size} | {statistics.median(plain):.1f} | {statistics.median(fast):.1f} | {spread} |")


if __name__ == "__main__":
    main()

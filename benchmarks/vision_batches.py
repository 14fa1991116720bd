"""Milliseconds per photograph of EfficientNet-Lite2, by batch size, against a pass without folded normalization.

The reference computes convolution, normalization and activation separately on the whole batch. It takes turns with the
inference pass, in PyTorch or another engine, by default on one thread, with random weights; the result is
the ratio of each round.

    python benchmarks/vision_batches.py
    python benchmarks/vision_batches.py --engine onnx
    python benchmarks/vision_batches.py --side 260 --batches 1 8 32 --rounds 5
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from hf_ngsan import VisionConfig, VisionModel
from hf_ngsan.loading.engines import ENGINES, use_engine
from hf_ngsan.models import modeling_efficientnet_lite, modeling_vision
from hf_ngsan.models.backbone_sources import VARIANTS
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteConfig


@contextmanager
def step_by_step() -> Iterator[None]:
    """Computes as in training inside the `with` block."""
    for module in (modeling_efficientnet_lite, modeling_vision):
        module.is_inference = lambda: False
    try:
        yield
    finally:
        for module in (modeling_efficientnet_lite, modeling_vision):
            module.is_inference = ORIGINAL


ORIGINAL = modeling_vision.is_inference


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", default="efficientnet-lite2")
    parser.add_argument("--side", type=int, default=352, help="side of images in pixels")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 20])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engine", choices=ENGINES, default="torch")
    return parser.parse_args()


@torch.inference_mode()
def milliseconds(backbone: Callable, images: torch.Tensor) -> float:
    started_at = time.perf_counter()
    backbone(images)
    return 1000 * (time.perf_counter() - started_at) / len(images)


def main() -> None:
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config = VisionConfig(backbone_config=NGSANEfficientNetLiteConfig(**VARIANTS[options.variant]))
    vision = VisionModel(config).eval()
    backbone = vision.backbone
    in_torch = backbone.forward
    use_engine(vision, CaptioningImageProcessor(size={"height": options.side, "width": options.side}), options.engine)
    layout = {"memory_format": torch.channels_last}  # as in a vision encoder
    print(f"| batch | step by step, ms | {options.engine}, ms | ratio |\n| --- | --- | --- | --- |")
    for size in options.batches:
        images = torch.randn(size, 3, options.side, options.side).to(**layout)
        with torch.inference_mode():
            folded = backbone(images).feature_maps[0]
            with step_by_step():
                expected = in_torch(images).feature_maps[0]
            torch.testing.assert_close(expected, folded, rtol=1e-4, atol=1e-5 * max(1.0, float(expected.abs().max())))
        plain, fast = [], []
        for _ in range(options.rounds):
            with step_by_step():
                plain.append(milliseconds(in_torch, images))
            fast.append(milliseconds(backbone, images))
        ratios = sorted(new / old for new, old in zip(fast, plain, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {size} | {statistics.median(plain):.1f} | {statistics.median(fast):.1f} | {spread} |")


if __name__ == "__main__":
    main()

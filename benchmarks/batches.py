"""Images per second over batch sizes: captions of the packaged captioner, and extracted features of its backbone.

All batch sizes take turns in one process; each round captions or extracts the same photographs. Larger batches should
not be slower: the program fails if a batch size has less than 0.95 of the speed of a smaller one.

    python benchmarks/batches.py
    python benchmarks/batches.py --engine onnx --images PHOTOS --rounds 5
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pipeline_batches import write_photos
from transformers import pipeline
from transformers.utils import logging

import hf_ngsan  # noqa: F401  # registers the pipeline
from hf_ngsan.extraction import extract_features, list_images, load_vision
from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.loading.engines import ENGINES, use_engine
from hf_ngsan.loading.models import load_model

SIDE = 352
LEAST = 0.95
"""Minimum speed relative to a smaller batch; differences above this are noise."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--images", metavar="DIR", help="a folder of photographs; by default, generated ones of 640 x 480 pixels"
    )
    parser.add_argument("--number", type=int, default=64, help="photographs per round (%(default)s)")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 20, 32, 64])
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--engine", choices=ENGINES, default="torch", help="(%(default)s)")
    return parser.parse_args()


def captioning(options: argparse.Namespace, folder: str, num_beams: int) -> Callable[[int], object]:
    model, processor = load_model(CAPTIONER, "captioning")
    captioner = pipeline("image-to-text", model=model, processor=processor, engine=options.engine)
    listed = list_images(folder)
    paths = [str(listed.folder / image.file_name) for image in listed.images]
    return lambda size: captioner(paths, batch_size=size, num_beams=num_beams)


def extraction(options: argparse.Namespace, folder: str) -> Callable[[int], object]:
    model, image_processor = load_vision("efficientnet-lite2", image_size=SIDE)
    use_engine(model, image_processor, options.engine)

    def extract(size: int) -> None:
        with tempfile.TemporaryDirectory() as output:
            extract_features(
                model, image_processor, folder, f"{output}/features", batch_size=size, num_workers=0, strict=True
            )

    return extract


def main() -> int:
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    is_level = True
    with tempfile.TemporaryDirectory() as drawn:
        if options.images is None:
            write_photos(Path(drawn), options.number)
        folder = options.images or drawn
        number = len(list_images(folder).images)
        work = {
            "captions, greedily": captioning(options, folder, 1),
            "captions, 3 beams": captioning(options, folder, 3),
            "features": extraction(options, folder),
        }
        print(f"{options.engine}, {options.threads} threads, {number} photographs, {options.rounds} rounds")
        print(f"\n| images/s, batches of | {' | '.join(map(str, options.batches))} |")
        print(f"| --- |{' --- |' * len(options.batches)}")
        for name, run in work.items():
            speeds: dict[int, list[float]] = {size: [] for size in options.batches}
            run(max(options.batches))  # warm up
            for _ in range(options.rounds):
                for size, rates in speeds.items():
                    started_at = time.perf_counter()
                    run(size)
                    rates.append(number / (time.perf_counter() - started_at))
            medians = [statistics.median(rates) for rates in speeds.values()]
            print(f"| {name} | {' | '.join(f'{median:.1f}' for median in medians)} |", flush=True)
            is_level &= all(median >= LEAST * max(medians[: place + 1]) for place, median in enumerate(medians))
    print(f"\nspeed {'does not fall' if is_level else 'falls'} as batches grow")
    return 0 if is_level else 1


if __name__ == "__main__":
    sys.exit(main())

"""Extraction against its backbone alone, and the memory that it needs, in one process with one thread.

Alone is what cannot be left out: each image is read, decoded with Pillow, resized, and goes through the backbone in
batches of the same size; nothing is checked, stamped or written. The two take turns, and the ratio of images per second
is taken pair by pair, in processor time, which other work on the machine disturbs little. Peak memory is that of
processes of their own, one for each number of images.

    python benchmarks/extraction.py --images images:flickr8k --split train
    python benchmarks/extraction.py --images images:flickr8k --split train --peak 500 3000
"""

import argparse
import dataclasses
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image

from hf_ngsan.extraction import extract_features, list_images, load_vision
from hf_ngsan.extraction.image_list import ImageList

LIMIT = 0.9
MIB = 1024 if sys.platform == "linux" else 1024 * 1024
"""`ru_maxrss` counts KiB on Linux and bytes on macOS."""


class Extraction:
    """A backbone and the images that go through it."""

    def __init__(self, options: argparse.Namespace):
        self.model, self.image_processor = load_vision(options.backbone)
        self.images, self.split, self.batch_size = list_images(options.images, None, options.split), options.split, 16

    def first(self, number: int) -> ImageList:
        return dataclasses.replace(self.images, images=self.images.images[:number])

    def whole(self, number: int, folder: str):
        extract_features(
            self.model,
            self.image_processor,
            self.first(number),
            folder,
            split=self.split,
            batch_size=self.batch_size,
            num_workers=0,
        )

    @torch.inference_mode()
    def alone(self, number: int, folder: str):
        images = self.first(number)
        for start in range(0, len(images), self.batch_size):
            positions = range(start, min(start + self.batch_size, len(images)))
            pictures = [self.picture(images, position) for position in positions]
            self.model(**self.image_processor(images=pictures, return_tensors="pt"))

    def picture(self, images: ImageList, position: int) -> Image.Image:
        if images.rows is not None:
            return images.rows[position]["image"].convert("RGB")
        return Image.open(images.folder / images.images[position].file_name).convert("RGB")


def processor_seconds(work, number: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        before = time.process_time()
        work(number, f"{folder}/features")
        return time.process_time() - before


def peak_of(number: int) -> int:
    """Returns the peak memory in MiB of an extraction of so many images, by a process of its own."""
    command = [sys.executable, *sys.argv, "--worker", str(number)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def describe(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):6.{digits}f}   ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="a folder of photographs, or a dataset: images:SOURCE")
    parser.add_argument("--split", help="of the dataset")
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--limit", type=int, default=200, help="images of a run (%(default)s)")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each (%(default)s)")
    parser.add_argument("--peak", type=int, nargs="+", help="measure the peak memory for so many images instead")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak and options.worker is None:
        for number in options.peak:
            print(f"{number:7d} images   {peak_of(number):6d} MiB at most")
        return 0
    extraction = Extraction(options)
    if options.worker is not None:
        with tempfile.TemporaryDirectory() as folder:
            extraction.whole(options.worker, str(Path(folder) / "features"))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // MIB)
        return 0
    extraction.alone(16, "")
    runs = {"whole": [], "alone": []}
    for pair in range(options.pairs):
        for name in ("whole", "alone") if pair % 2 else ("alone", "whole"):
            runs[name].append(options.limit / processor_seconds(getattr(extraction, name), options.limit))
    ratios = [whole / alone for whole, alone in zip(runs["whole"], runs["alone"], strict=True)]
    print(f"{options.backbone}, images a second of processor time: median of {options.pairs} (smallest to largest)")
    print(f"extraction          {describe(runs['whole'], 1)}")
    print(f"backbone alone      {describe(runs['alone'], 1)}")
    print(f"extraction / alone  {describe(ratios, 3)}   required: at least {LIMIT}")
    return 0 if statistics.median(ratios) >= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())

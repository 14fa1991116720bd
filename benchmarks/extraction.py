"""Speed of extraction against a minimal loop with the backbone, and the memory of extraction, with one thread.

The minimal loop reads each image, decodes it with Pillow, resizes it, and runs the backbone in batches of the same
size; it checks and writes nothing. The two take turns, and the result is the ratio of images per second of each pair,
in processor time, which is robust to other load on the machine. Peak memory is measured in separate processes, one for
each number of images.

    python benchmarks/extraction.py --images images:flickr8k --split train
    python benchmarks/extraction.py --images images:flickr8k --split train --peak 500 3000
    python benchmarks/extraction.py --images images:flickr8k --split train --boxes boxes.json --image-size 352

With --boxes, extraction of the regions in this file takes turns with extraction of the grid instead of the minimal
loop. This also prints the time of pooling 36 boxes as a share of the time of the backbone.
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
from hf_ngsan.models.modeling_vision import region_features

LIMIT = 0.9
MOST_OF_POOLING = 0.05
MIB = 1024 if sys.platform == "linux" else 1024 * 1024
"""`ru_maxrss` counts KiB on Linux and bytes on macOS."""


class Extraction:
    """A backbone and its images."""

    def __init__(self, options: argparse.Namespace):
        self.model, self.image_processor = load_vision(options.backbone, image_size=options.image_size)
        self.images, self.split, self.batch_size = list_images(options.images, None, options.split), options.split, 16
        if options.boxes:
            self.box_model, _ = load_vision(options.backbone, kind="boxes", image_size=options.image_size)
            self.boxes = self.images.with_boxes(options.boxes, self.box_model.config).boxes

    def first(self, number: int) -> ImageList:
        return dataclasses.replace(self.images, images=self.images.images[:number])

    def regions(self, number: int, folder: str):
        images = dataclasses.replace(self.first(number), boxes=self.boxes[:number])
        self.extract(number, folder, self.box_model, images)

    def extract(self, number: int, folder: str, model=None, images=None):
        extract_features(
            model or self.model,
            self.image_processor,
            images or self.first(number),
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


@torch.inference_mode()
def share_of_pooling(extraction: Extraction) -> float:
    """Returns the processor time of pooling 36 boxes as a share of the backbone's time, for a batch of 16 images."""
    side = extraction.image_processor.size["height"]
    pixels, corners = torch.randn(16, 3, side, side), torch.rand(16, 36, 2, 2).sort(-2).values.flatten(2)
    [feature_map] = extraction.model.backbone(pixels).feature_maps
    seconds = []
    for work in (lambda: extraction.model.backbone(pixels), lambda: region_features(feature_map, corners)):
        before = time.process_time()
        for _ in range(5):
            work()
        seconds.append(time.process_time() - before)
    print(f"pooling of 36 boxes {seconds[1] / seconds[0]:.2%} of the backbone, map {tuple(feature_map.shape[-2:])}")
    return seconds[1] / seconds[0]


def processor_seconds(work, number: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        before = time.process_time()
        work(number, f"{folder}/features")
        return time.process_time() - before


def peak_of(number: int) -> int:
    """Returns the peak memory in MiB of an extraction of `number` images in a separate process."""
    command = [sys.executable, *sys.argv, "--worker", str(number)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def describe(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):6.{digits}f}   ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="a folder of photographs, or a dataset: images:SOURCE")
    parser.add_argument("--split", help="of the dataset")
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--image-size", type=int, help="side of the backbone's images in pixels")
    parser.add_argument("--boxes", help="compare regions of the boxes in this file with the grid")
    parser.add_argument("--limit", type=int, default=200, help="images per run (%(default)s)")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each (%(default)s)")
    parser.add_argument(
        "--peak", type=int, nargs="+", help="instead, measure the peak memory for these numbers of images"
    )
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
            extraction.extract(options.worker, str(Path(folder) / "features"))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // MIB)
        return 0
    extraction.alone(16, "")
    names = ("regions", "whole") if options.boxes else ("whole", "alone")
    runs = {name: [] for name in names}
    for pair in range(options.pairs):
        for name in names if pair % 2 else names[::-1]:
            runs[name].append(options.limit / processor_seconds(getattr(extraction, name), options.limit))
    ratios = [first / second for first, second in zip(*runs.values(), strict=True)]
    shown = {"regions": "regions of boxes", "whole": "extraction", "alone": "backbone alone"}
    print(f"{options.backbone}, images per second of processor time: median of {options.pairs} (smallest to largest)")
    for name in names:
        print(f"{shown[name]:18}  {describe(runs[name], 1)}")
    print(f"ratio               {describe(ratios, 3)}   required: at least {LIMIT}")
    is_cheap = not options.boxes or share_of_pooling(extraction) <= MOST_OF_POOLING
    return 0 if statistics.median(ratios) >= LIMIT and is_cheap else 1


if __name__ == "__main__":
    sys.exit(main())

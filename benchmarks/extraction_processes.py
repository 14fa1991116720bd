"""Extraction with two processes against one, each with one thread.

VGG-11 at 224 x 224 pixels with random weights encodes synthetic scenes, or the photos of a folder, into a 7 x 7 grid.
One process and two take turns in alternating order, and the result is the ratio of images per second of each pair, for
the time within `extract_features`, without the start of Python. On two idle processors, two processes should be at
least 1.6 times as fast. The total processor time is robust to other load: if it is equal for one and two processes,
splitting the work has no overhead.

    python benchmarks/extraction_processes.py
    python benchmarks/extraction_processes.py --images PHOTOS --pairs 5
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.6


def draw_scenes(folder: Path, number: int):
    from hf_ngsan.data import draw_scene, make_scene

    folder.mkdir()
    for index in range(number):
        draw_scene(make_scene(0, 2, index), size=480).save(folder / f"{index:06d}.jpg")


def run(processes: int, options: argparse.Namespace, folder: str) -> dict:
    """Returns images per second and processor seconds of an extraction with 1 or 2 processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    arguments = [__file__, "--images", options.images, "--limit", str(options.limit), "--worker", folder]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    output = subprocess.run([*launcher, *arguments], env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(next(line for line in output.splitlines() if line.startswith("{")))


def work(options: argparse.Namespace):
    """Extracts features in each process; the first process prints the numbers of all."""
    import torch
    from accelerate.utils import gather_object

    from hf_ngsan.extraction import extract_features, list_images
    from hf_ngsan.extraction.extract import extraction_accelerator
    from hf_ngsan.extraction.image_list import ImageList
    from hf_ngsan.models.configuration_vision import VisionConfig
    from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
    from hf_ngsan.models.modeling_vision import VisionModel

    torch.manual_seed(0)
    model = VisionModel(VisionConfig(backbone_config={"model_type": "ngsan_vgg"}, grid_size=[7, 7]))
    listed = list_images(options.images)
    images = ImageList(listed.source, listed.images[: options.limit], listed.folder)
    accelerator = extraction_accelerator()
    accelerator.wait_for_everyone()
    before = time.process_time()
    result = extract_features(
        model,
        CaptioningImageProcessor(),
        images,
        options.worker,
        batch_size=2,
        images_per_shard=2,
        num_workers=0,
        accelerator=accelerator,
    )
    processor_seconds = gather_object([time.process_time() - before])
    if accelerator.is_main_process:
        print(json.dumps({"pace": result.num_rows / result.seconds, "processor": sum(processor_seconds)}))
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", metavar="DIR", help="photos (synthetic scenes)")
    parser.add_argument("--limit", type=int, default=64, help="images per run (%(default)s)")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each number of processes (%(default)s)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    runs: dict[int, list[dict]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        if options.images is None:
            options.images = str(Path(folder) / "scenes")
            draw_scenes(Path(options.images), options.limit)
        for pair in range(options.pairs):
            for number in (1, 2) if pair % 2 == 0 else (2, 1):
                runs[number].append(run(number, options, str(Path(folder) / f"{pair}-{number}")))
    for number, results in runs.items():
        pace = [result["pace"] for result in results]
        spread = f"({min(pace):.2f} to {max(pace):.2f})"
        spent = statistics.median(result["processor"] for result in results)
        print(
            f"{number} processes {statistics.median(pace):6.2f} images/s   {spread}   {spent:.1f} s of processor time"
        )
    ratios = [double["pace"] / single["pace"] for single, double in zip(runs[1], runs[2], strict=True)]
    ratio = statistics.median(ratios)
    spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"2 processes to 1: {ratio:.2f} x {spread}, required: at least {LIMIT}")
    sharing = [double["processor"] / single["processor"] for single, double in zip(runs[1], runs[2], strict=True)]
    print(f"            {statistics.median(sharing):5.2f} x the processor time")
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    return 0 if ratio >= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())

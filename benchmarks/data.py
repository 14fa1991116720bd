"""Speed and memory of converting bottom-up attention features and of reading the result, on synthetic features.

Conversion: megabytes of TSV per second. Reading: the speed of making batches divided by the speed of training steps.
Both use processor time, which is robust to other load on the machine. Memory: the peak private memory of separate
processes, one for each number of images, that convert all of them, and that run `hf-ngsan train` on them for an epoch.
On Linux, pages of mapped files, which the system can reclaim, are not counted.

    python benchmarks/data.py
    python benchmarks/data.py --images 5000
    python benchmarks/data.py --peak 1000 20000
    python benchmarks/data.py --peak 1000 20000 --regions 4 --feature-size 64 --hidden-size 16 --layers 1
"""

import argparse
import base64
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import psutil
import torch

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration, NGSANProcessor
from hf_ngsan.cli import main as main_of_hf_ngsan
from hf_ngsan.data import CaptionCollator, build_tokenizer, load_data
from hf_ngsan.data.conversion import convert_features

CONVERSION_LIMIT, READING_LIMIT, MEMORY_LIMIT = 100, 3, 1536
WORDS = [f"word{number}" for number in range(1000)]
SIDE = 640
MEGABYTE = 10**6
MIB = 1024 * 1024
SECONDS_BETWEEN_LOOKS = 0.02


def write_inputs(folder: Path, sizes: argparse.Namespace) -> list[Path]:
    """Writes a TSV of random features and a file of random captions; returns both."""
    draw = np.random.default_rng(0)
    features = draw.uniform(0, 3, (sizes.regions, sizes.feature_size)).astype("<f4")
    tsv, captions = folder / "regions.tsv", folder / "captions_train.json"
    annotations = []
    with open(tsv, "wb") as file:
        for image_id in range(sizes.images):
            corners = np.sort(draw.uniform(0, SIDE, (sizes.regions, 2, 2)), axis=1).reshape(-1, 4).astype("<f4")
            arrays = [base64.b64encode(array.tobytes()) for array in (corners, np.roll(features, image_id))]
            file.write(b"\t".join([b"%d\t%d\t%d\t%d" % (image_id, SIDE, SIDE, sizes.regions), *arrays]) + b"\n")
            for number in range(5):
                words = " ".join(draw.choice(WORDS, 10))
                annotations.append({"id": 5 * image_id + number, "image_id": image_id, "caption": words})
    images = [{"id": image_id} for image_id in range(sizes.images)]
    captions.write_text(json.dumps({"images": images, "annotations": annotations}))
    return [tsv, captions]


class Training:
    """A captioner and its training rows."""

    def __init__(self, features: Path, sizes: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.rows, self.batch_size = load_data(f"features:{features}", "train"), sizes.batch_size
        tokenizer = build_tokenizer(WORDS, min_count=1)
        config = NGSANConfig(
            vocab_size=len(tokenizer),
            visual_feature_size=sizes.feature_size,
            hidden_size=sizes.hidden_size,
            intermediate_size=4 * sizes.hidden_size,
            num_hidden_layers=sizes.layers,
        )
        self.model = NGSANForConditionalGeneration(config).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.collate = CaptionCollator(NGSANProcessor(tokenizer=tokenizer), captions_per_image=5)

    def batches(self) -> range:
        return range(0, len(self.rows) - self.batch_size + 1, self.batch_size)

    def read(self, start: int) -> dict:
        return self.collate([self.rows[row] for row in range(start, start + self.batch_size)])

    def step(self, batch: dict) -> None:
        self.model(**batch).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def processor_seconds(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def convert(inputs: list[Path], output: Path) -> None:
    convert_features(inputs, output, split="train")


def measure(sizes: argparse.Namespace, folder: Path) -> None:
    inputs = write_inputs(folder, sizes)
    seconds = processor_seconds(lambda: convert(inputs, folder / "features"))
    pace = inputs[0].stat().st_size / MEGABYTE / seconds
    print(f"conversion {pace:7.1f} MB/s   required: at least {CONVERSION_LIMIT}")
    training = Training(folder / "features", sizes)
    training.step(training.read(0))
    ratios = []
    for start in training.batches()[: sizes.pairs]:
        batch: list[dict] = []
        reading = processor_seconds(lambda start=start, batch=batch: batch.append(training.read(start)))
        ratios.append(processor_seconds(lambda batch=batch: training.step(batch[0])) / reading)
    spread = f"{statistics.median(ratios):7.2f}   ({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"reading    {spread} times the speed of training   required: at least {READING_LIMIT}")


class PrivateMemory:
    """Peak private memory of this process inside a `with` block, sampled every 20 ms.

    Private memory is the resident memory without pages of files, such as a memory-mapped dataset, if psutil separates
    them (Linux). The "unique set size" of psutil differs: it counts pages of files that no other process maps.
    """

    def __enter__(self) -> "PrivateMemory":
        self.peak, self.is_over = 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def watch(self) -> None:
        process = psutil.Process()
        while True:
            memory = process.memory_info()
            self.peak = max(self.peak, memory.rss - getattr(memory, "shared", 0))
            if self.is_over.wait(SECONDS_BETWEEN_LOOKS):
                return

    def __exit__(self, *error: object) -> None:
        self.is_over.set()
        self.thread.join()


def peak_of_this_process(sizes: argparse.Namespace, folder: Path) -> int:
    """Returns the peak private memory in MiB of the task `sizes.worker`."""
    with PrivateMemory() as memory:
        if sizes.worker == "conversion":
            convert([folder / "regions.tsv", folder / "captions_train.json"], folder / "features")
        else:
            train(folder, sizes)
    return memory.peak // MIB


def train(folder: Path, sizes: argparse.Namespace) -> None:
    """Trains for one epoch as a user does."""
    changes = {
        "model.hidden_size": sizes.hidden_size,
        "model.intermediate_size": 4 * sizes.hidden_size,
        "model.num_hidden_layers": sizes.layers,
        "model.num_attention_heads": 8,
        "data.spec": f"features:{folder / 'features'}",
        "data.validation_split": "null",
        "training.output_dir": folder / "run",
        "training.epochs": 1,
        "training.batch_size": sizes.batch_size,
        "training.tracker": "null",
    }
    overrides = [f"{key}={value}" for key, value in changes.items()]
    assert main_of_hf_ngsan(["train", "--config", "ngsan/scenes", *overrides]) == 0


def compare_peaks(sizes: argparse.Namespace, folder: Path) -> None:
    """Prints the peak private memory of conversion and training for each number of images."""
    peaks = []
    for number in sizes.peak:
        place = folder / str(number)
        place.mkdir()
        write_inputs(place, argparse.Namespace(**{**vars(sizes), "images": number}))
        for worker in ("conversion", "training"):
            command = [sys.executable, *sys.argv, "--worker", worker, "--folder", str(place)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            peaks.append(int(output.split()[-1]))
            print(f"{worker:<11}{number:7} images   {peaks[-1]:>6} MiB", flush=True)
        (place / "regions.tsv").unlink()
    print(f"training: {peaks[-1] - peaks[1]:+} MiB   required: at most {MEMORY_LIMIT} more")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--feature-size", type=int, default=2048)
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=7, help="pairs of a read batch and a step (%(default)s)")
    parser.add_argument("--peak", type=int, nargs="+", metavar="IMAGES", help="compare peak memory instead")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--worker", choices=("conversion", "training"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    sizes = parser.parse_args()
    torch.set_num_threads(sizes.threads)
    datasets.disable_progress_bars()
    if sizes.worker:
        print(peak_of_this_process(sizes, sizes.folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        (compare_peaks if sizes.peak else measure)(sizes, Path(folder))


if __name__ == "__main__":
    main()

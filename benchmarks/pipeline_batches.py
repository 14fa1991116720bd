"""Images per second of `pipeline("image-to-text")` with batches of 8 against batches of 1, from files to captions.

The spatial captioner at paper size (VGG-11 at 224 pixels, 2 + 4 layers, 14 words) with random weights captions the same
JPEG files; the two batch sizes take turns in one process, and the result is the ratio of each round. Every caption has
the maximum number of words, so that both do the same work with any weights. Processor time is also printed, because it
is more robust to other load on the machine.

    python benchmarks/pipeline_batches.py
    python benchmarks/pipeline_batches.py --threads 1 --images 16 --rounds 5
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from hf_ngsan import CaptioningPipeline, SpatialCaptionerConfig, SpatialCaptionerForConditionalGeneration
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.processing_spatial_captioner import SpatialCaptionerProcessor

WANTED = 1.5
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


def make_pipeline(vocabulary: int, device: str) -> CaptioningPipeline:
    torch.manual_seed(0)
    model = SpatialCaptionerForConditionalGeneration(SpatialCaptionerConfig(vocab_size=vocabulary)).eval()
    words = SPECIAL + [f"word{index}" for index in range(vocabulary - len(SPECIAL))]
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    processor = SpatialCaptionerProcessor(CaptioningImageProcessor(), tokenizer)
    return CaptioningPipeline(model=model, processor=processor, device=device)


def write_photos(folder: Path, count: int) -> list[str]:
    """Writes JPEG files of 640 x 480 pixels."""
    paths = []
    for index in range(count):
        noise = np.random.default_rng(index).integers(0, 256, (15, 20, 3), dtype=np.uint8)
        paths.append(str(folder / f"{index}.jpg"))
        Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(paths[-1], quality=90)
    return paths


def seconds(pipe: CaptioningPipeline, paths: list[str], batch_size: int) -> tuple[float, float]:
    """Returns elapsed and processor time of captioning."""
    words = pipe.model.generation_config.max_new_tokens
    elapsed, worked = time.perf_counter(), time.process_time()
    captions = pipe(paths, batch_size=batch_size, min_new_tokens=words)
    elapsed, worked = time.perf_counter() - elapsed, time.process_time() - worked
    assert len(captions) == len(paths)
    return elapsed, worked


def summary(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--images", type=int, default=16, help="images per round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=9491)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    pipe = make_pipeline(arguments.vocabulary, arguments.device)
    speeds, ratios = {1: [], arguments.batch_size: []}, {"time": [], "processor time": []}
    with tempfile.TemporaryDirectory() as folder:
        paths = write_photos(Path(folder), arguments.images)
        for batch_size in speeds:
            seconds(pipe, paths[:batch_size], batch_size)  # warm up
        for number in range(1, arguments.rounds + 1):
            took = {batch_size: seconds(pipe, paths, batch_size) for batch_size in speeds}
            for batch_size, (elapsed, _) in took.items():
                speeds[batch_size].append(len(paths) / elapsed)
            for name, single, batched in zip(ratios, took[1], took[arguments.batch_size], strict=True):
                ratios[name].append(single / batched)
            latest = ", ".join(f"{name} {values[-1]:.2f}" for name, values in ratios.items())
            print(f"round {number}: ratio of {latest}", flush=True)
    for batch_size, values in speeds.items():
        print(f"batches of {batch_size}: {statistics.median(values):.2f} images/s")
    for name, values in ratios.items():
        print(f"ratio of {name}: {summary(values)}")
    reached = statistics.median(ratios["time"])
    print(f"required: at least {WANTED}; {'reached' if reached >= WANTED else 'missed'}")
    return 0 if reached >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())

"""Peak memory of extraction, captioning and indexing of many images, and the memory for each additional image.

Commands with tiny models and random weights process folders of images of 8 x 8 pixels, so that lists of names,
checksums, records and captions dominate the memory. Each command runs separately. The last line of a command is the
slope between its smallest and largest folder.

    python benchmarks/rows_in_memory.py --rows 2000 20000
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_ngsan import (
    CaptioningImageProcessor,
    MHSANConfig,
    MHSANModel,
    MHSANProcessor,
    NGSANConfig,
    NGSANForConditionalGeneration,
    NGSANProcessor,
)

IMAGES_PER_FOLDER = 1000
SECONDS_BETWEEN_LOOKS = 0.1
WORDS = ["<pad>", "<s>", "</s>", "<unk>", "a", "dog", "runs", "on", "grass"]
VISION = {"backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]}, "grid_size": [2, 2]}
SIZES = {"vocab_size": len(WORDS), "hidden_size": 8, "num_hidden_layers": 1}


def save_models(folder: Path) -> None:
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    image_processor = CaptioningImageProcessor(size={"height": 8, "width": 8})
    captioner = NGSANConfig(vision_config=VISION, num_attention_heads=2, intermediate_size=8, **SIZES)
    dual_encoder = MHSANConfig(vision_config=VISION, text_config={**SIZES, "word_embedding_size": 8}, projection_dim=8)
    for name, model, processor in (
        ("captioner", NGSANForConditionalGeneration(captioner), NGSANProcessor(image_processor, tokenizer)),
        ("dual_encoder", MHSANModel(dual_encoder), MHSANProcessor(image_processor, tokenizer)),
    ):
        model.save_pretrained(folder / name)
        processor.save_pretrained(folder / name)


def write_images(folder: Path, number: int) -> None:
    for index in range(number):
        place = folder / f"{index // IMAGES_PER_FOLDER:06d}"
        if index % IMAGES_PER_FOLDER == 0:
            place.mkdir(parents=True)
        pixels = np.full((8, 8, 3), [index % 256, index // 256 % 256, index // 65536], np.uint8)
        Image.fromarray(pixels).save(place / f"photograph_{index:09d}.png")


def peak_of(command: list[str]) -> int:
    """Returns the peak memory in bytes of a command."""
    process = psutil.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    largest = 0
    while process.poll() is None:
        with suppress(psutil.Error):
            largest = max(largest, process.memory_info().rss)
        time.sleep(SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 20000], metavar="N", help="(2000 20000)")
    parser.add_argument("--commands", nargs="+", choices=["extract", "caption", "index"], help="(all)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_models(folder)
        for number in options.rows:
            write_images(folder / str(number), number)
        for name in options.commands or ["extract", "caption", "index"]:
            peaks = {}
            for number in options.rows:
                images, output = str(folder / str(number)), str(folder / f"{name}-{number}")
                flags = {
                    "extract": ["--backbone", str(folder / "captioner"), "--images", images],
                    "caption": ["--model", str(folder / "captioner"), images, "--json"],
                    "index": ["--model", str(folder / "dual_encoder"), "--images", images],
                }[name]
                flags += [] if name == "caption" else ["--num-workers", "0"]
                command = [sys.executable, "-m", "hf_ngsan.cli", name, *flags, "--output", output, "--batch-size", "64"]
                peaks[number] = peak_of(command)
                print(f"{name:8}{number:9,} rows {peaks[number] / 2**20:8,.0f} MiB", flush=True)
            first, last = min(peaks), max(peaks)
            if last > first:
                slope = (peaks[last] - peaks[first]) / (last - first)
                print(f"{name:8}{'a row':>14} {slope:8,.0f} bytes", flush=True)


if __name__ == "__main__":
    main()

"""A captioner exported to ONNX against the model in eager PyTorch: equal captions, and images per second.

Both caption the same rows, from prepared inputs to text, in batches, greedily and with 3 beams. They take turns, and
the result is the ratio of each round. The program fails if a caption differs or the ratio is too low.

    hf-ngsan train --config ngsan/scenes
    python benchmarks/export.py --model runs/scenes
    python benchmarks/export.py --model runs/scenes --images 20 --rounds 1
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from paired_steps import describe, in_turns, ratios
from transformers.utils import logging

from hf_ngsan.data.collator import visual_arguments
from hf_ngsan.exporting import MAX_DIFFERENCE, ExportedCaptioner, compare_exported, write_exported_captioner
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.tasks.caption_rows import load_rows, rows_for
from hf_ngsan.training.batches import take

WANTED = 1.3
BEAMS = (1, 3)


def seconds(caption: Callable[[Any], list[str]], batches: list) -> float:
    start = time.perf_counter()
    for batch in batches:
        caption(batch)
    return time.perf_counter() - start


def exported(model: Any, processor: Any, folder: Path, threads: int) -> ExportedCaptioner:
    folder.mkdir()
    write_exported_captioner(model, processor, folder)
    size = sum(file.stat().st_size for file in folder.glob("*.onnx*")) / 1e6
    print(f"{folder.name}: {size:.1f} MB", flush=True)
    return ExportedCaptioner(folder, num_threads=threads)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a captioner, or the folder of its training run")
    parser.add_argument("--data", help="scenes with as many test images as --images, by default")
    parser.add_argument("--split", default="test")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    model, processor = load_captioner(arguments.model)
    images = ",images=true" if model.config.vision_config is not None else ""
    spec = arguments.data or f"scenes:test={arguments.images}{images}"
    rows = rows_for(model, processor, load_rows(spec, arguments.split, limit=arguments.images), spec)
    failed = []
    with tempfile.TemporaryDirectory() as place:
        onnx = exported(model, processor, Path(place, "onnx"), arguments.threads)
        others, difference = compare_exported(model, processor, onnx, rows, BEAMS, arguments.batch_size)
        print(
            f"{len(rows)} images: captions that differ, by beams: {others}, required: none; "
            f"log-probabilities differ by {difference:.1e} at most",
            flush=True,
        )
        failed += [] if difference <= MAX_DIFFERENCE and not any(others.values()) else ["captions"]
        places = [
            range(start, min(start + arguments.batch_size, len(rows)))
            for start in range(0, len(rows), arguments.batch_size)
        ]
        inputs = [visual_arguments(take(rows, indices)) for indices in places]
        torch_inputs = [processor(**item) for item in inputs]
        onnx_inputs = [onnx.prepare(**item) for item in inputs]
        for beams in BEAMS:

            def eager(batch: Any, beams: int = beams) -> list[str]:
                with torch.inference_mode():
                    return processor.batch_decode(model.generate(**batch, num_beams=beams), skip_special_tokens=True)

            def through(captioner: ExportedCaptioner) -> Callable[[Any], list[str]]:
                return lambda batch: captioner.words.decode(captioner.generate(batch, num_beams=beams))  # noqa: B023

            measures = {
                "PyTorch": partial(seconds, eager, torch_inputs),
                "ONNX": partial(seconds, through(onnx), onnx_inputs),
            }
            times = in_turns(measures, arguments.rounds)
            for name, values in times.items():
                print(
                    f"{beams} beams, {name:<8}{describe([len(rows) / value for value in values])} images/s", flush=True
                )
            gains = ratios({"ONNX": times["ONNX"], "PyTorch": times["PyTorch"]})
            reached = statistics.median(gains)
            print(f"{beams} beams, ratio   {describe(gains)}; required: at least {WANTED}", flush=True)
            failed += [] if reached >= WANTED else ["speed"]
    print("missed: " + ", ".join(dict.fromkeys(failed)) if failed else "all reached")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
